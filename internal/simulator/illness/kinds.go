package illness

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kindNames are the kinds of fault as they are written, those of nodes first.
var kindNames = []string{
	"notReady", "pressure", "flaps", "powerLoss", "room", "noResize", "maintenance",
	"crash", "outOfMemory", "neverReady", "slowPull", "slowTask", "pullError", "startError", "killsNode", "badContent",
	"slowStart",
}

// nodeKinds is how many of kindNames are faults of nodes.
const nodeKinds = 7

// kinds lists the kinds that the fault names.
func (f *Fault) kinds() (names []string) {
	for i, there := range []bool{
		f.NotReady != nil, f.Pressure != nil, f.Flaps != nil, f.PowerLoss != nil, f.Room != nil, f.NoResize != nil,
		f.Maintenance != nil,
		f.Crash != nil, f.Memory != nil, f.Unready != nil, f.SlowPull != nil, f.SlowTask != nil, f.PullError != nil,
		f.Unstarted != nil, f.KillsNode != nil,
		f.BadContent != nil, f.SlowStart != nil,
	} {
		if there {
			names = append(names, kindNames[i])
		}
	}
	return names
}

// ofNode reports whether it is a fault of nodes, not of pods.
func (f *Fault) ofNode() bool {
	kinds := f.kinds()
	return len(kinds) > 0 && slices.Index(kindNames, kinds[0]) < nodeKinds
}

// checkKind checks what the kind says, and fills in its defaults.
func (f *Fault) checkKind() error {
	switch {
	case f.NotReady != nil:
		orElse(&f.NotReady.Message, "container runtime network not ready: a simulated fault")
		return f.NotReady.check()
	case f.Pressure != nil:
		return f.Pressure.check()
	case f.Flaps != nil:
		return f.Flaps.check()
	case f.PowerLoss != nil:
		return f.PowerLoss.check()
	case f.Room != nil:
		return f.Room.check()
	case f.NoResize != nil:
		orElse(&f.NoResize.Message, "In-place resize is not supported: a simulated fault")
	case f.Maintenance != nil:
		return f.Maintenance.check()
	}
	return f.checkPodKind()
}

func (f *Fault) checkPodKind() error {
	switch {
	case f.Crash != nil:
		return f.Crash.check()
	case f.BadContent != nil:
		return f.BadContent.check()
	case f.Memory != nil:
		if uses := f.Memory.Uses; uses != nil && uses.Sign() <= 0 {
			return errors.New("uses must be more than 0")
		}
		return notNegative(given(f.Memory.After, 0))
	case f.SlowPull != nil:
		return checkTakes(&f.SlowPull.Takes)
	case f.SlowTask != nil:
		return checkTakes(&f.SlowTask.Takes)
	case f.SlowStart != nil:
		return f.SlowStart.check()
	case f.KillsNode != nil:
		return notNegative(given(f.KillsNode.After, 0), f.KillsNode.For.Duration)
	case f.Unready != nil:
		orElse(&f.Unready.Message, "HTTP probe failed with statuscode: 503")
	case f.PullError != nil:
		orElse(&f.PullError.Message, "simulated fault: the registry does not have it")
	case f.Unstarted != nil:
		orElse(&f.Unstarted.Message, "simulated fault: exec: no such file or directory")
	}
	return nil
}

func checkTakes(takes *metav1.Duration) error {
	if takes.Duration == 0 {
		takes.Duration = time.Minute
	}
	return notNegative(takes.Duration)
}

func (s *SlowStart) check() error {
	err := checkTakes(&s.Takes)
	if err != nil || s.UpTo == nil {
		return err
	}
	if s.UpTo.Duration < s.Takes.Duration {
		return fmt.Errorf("upTo %s is less than takes %s", s.UpTo.Duration, s.Takes.Duration)
	}
	return nil
}

// on is how long a start takes on a node that has this chance.
func (s *SlowStart) on(chance float64) time.Duration {
	if s.UpTo == nil {
		return s.Takes.Duration
	}
	return s.Takes.Duration + time.Duration(chance*float64(s.UpTo.Duration-s.Takes.Duration))
}

func (f *Flaps) check() error {
	if f.Up == (metav1.Duration{}) && f.Down == (metav1.Duration{}) {
		f.Up, f.Down = metav1.Duration{Duration: 2 * time.Minute}, metav1.Duration{Duration: time.Minute}
	}
	if f.Up.Duration <= 0 || f.Down.Duration <= 0 {
		return errors.New("flaps needs both times, up and down, or none for 2m and 1m")
	}
	return nil
}

func (p *Pressure) check() error {
	if !slices.Contains([]string{"memory", "disk", "pid"}, p.Of) {
		return fmt.Errorf("pressure is of memory, disk or pid, not of %q", p.Of)
	}
	return p.Span.check()
}

func (m *Maintenance) check() error {
	m.Condition = cmp.Or(m.Condition, corev1.NodeMaintenanceInProgress)
	orElse(&m.Message, "a simulated fault")
	if !slices.Contains(MaintenanceConditions, m.Condition) {
		return fmt.Errorf("maintenance has the condition %s, %s, %s, %s or %s, not %q", MaintenanceConditions[0],
			MaintenanceConditions[1], MaintenanceConditions[2], MaintenanceConditions[3], MaintenanceConditions[4], m.Condition)
	}
	return m.Span.check()
}

func (b *BadContent) check() error {
	if b.Key == "" {
		return errors.New("badContent names no key")
	}
	return b.Crash.check()
}

func (c *Crash) check() error {
	if c.ExitCode < 0 || c.ExitCode > 255 {
		return fmt.Errorf("exitCode %d is not from 1 to 255", c.ExitCode)
	}
	if c.Times < 0 {
		return fmt.Errorf("times %d is less than never", c.Times)
	}
	return notNegative(given(c.After, 0))
}

func (s *Span) check() error { return notNegative(s.After.Duration, s.For.Duration) }

func (r *Room) check() error {
	if r.CPU == nil && r.Memory == nil && r.Pods == nil {
		return errors.New("room says how much of cpu, memory or pods there is, and names none")
	}
	if r.CPU != nil && r.CPU.Sign() < 0 || r.Memory != nil && r.Memory.Sign() < 0 || r.Pods != nil && r.Pods.Sign() < 0 {
		return errors.New("room must not be less than nothing")
	}
	return nil
}

func notNegative(times ...time.Duration) error {
	for _, t := range times {
		if t < 0 {
			return fmt.Errorf("%s is less than no time", t)
		}
	}
	return nil
}

func orElse(text *string, otherwise string) {
	if *text == "" {
		*text = otherwise
	}
}
