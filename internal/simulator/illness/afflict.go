package illness

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// outOfMemoryCode is the exit code of a container that was killed.
const outOfMemoryCode = 137

func errOfNode(f *Fault) error {
	return fmt.Errorf("annotation %s: %s is a fault of nodes, and stands on a pod", Annotation, f.kinds()[0])
}

func (f *Crash) afflict(c *Container) {
	c.Ends, c.After, c.ExitCode = true, given(f.After, time.Second), cmp.Or(f.ExitCode, 1)
	c.Reason, c.Message, c.times = "Error", f.Message, f.Times
}

// in reports whether one of the ConfigMaps has the value.
func (f *BadContent) in(content []map[string]string) bool {
	return slices.ContainsFunc(content, func(data map[string]string) bool {
		v, has := data[f.Key]
		return has && v == f.Value
	})
}

// spares reports whether the container may use as much as it does.
func (f *Memory) spares(spec *corev1.Container) bool {
	if f == nil || f.Uses == nil {
		return false
	}
	limit, limited := spec.Resources.Limits[corev1.ResourceMemory]
	return !limited || limit.Cmp(*f.Uses) >= 0
}

// afflict adds a fault of pods to what ails the container already; content is what its pod reads.
func (f *Fault) afflict(c *Container, content []map[string]string) {
	switch {
	case f.Crash != nil && !c.Ends:
		f.Crash.afflict(c)
	case f.BadContent != nil && !c.Ends && f.BadContent.in(content):
		f.BadContent.afflict(c)
	case f.Memory != nil && !c.Ends:
		c.Ends, c.After, c.ExitCode, c.Reason = true, given(f.Memory.After, time.Second), outOfMemoryCode, "OOMKilled"
	case f.Unready != nil:
		c.Unready = cmp.Or(c.Unready, f.Unready.Message)
	case f.SlowPull != nil:
		c.PullTakes = cmp.Or(c.PullTakes, f.SlowPull.Takes.Duration)
	case f.SlowTask != nil:
		c.TaskTakes = cmp.Or(c.TaskTakes, f.SlowTask.Takes.Duration)
	case f.PullError != nil:
		c.PullError = cmp.Or(c.PullError, f.PullError.Message)
	case f.Unstarted != nil:
		c.StartError = cmp.Or(c.StartError, f.Unstarted.Message)
	case f.KillsNode != nil && c.kills == nil:
		c.kills = f.KillsNode
	}
}
