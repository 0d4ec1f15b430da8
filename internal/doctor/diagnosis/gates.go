package diagnosis

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/pinning"
)

// gatedFor is how long a pod may wait behind the gate: the first one that asks a registry has ten minutes.
const gatedFor = 15 * time.Minute

// gated finds pods that wait in vain behind the gate of those that are to ask a registry, and who put them there.
func gated(f *findings, c *Cluster) {
	templates := map[string]bool{}
	for _, ds := range c.DaemonSets {
		if pinning.IsGated(&ds.Spec.Template.Spec) {
			templates[string(ds.UID)] = true
			writtenGate(f, c, ds)
		}
	}
	waits := map[string][]string{}
	for _, p := range c.Gated {
		of, subject := metav1.GetControllerOf(p), "pods in "+p.Namespace
		if of != nil {
			subject = "pods of " + of.Kind + " " + of.Name + " in " + p.Namespace
		}
		old := c.Now.Sub(p.CreationTimestamp.Time) > gatedFor
		if old && (of == nil || !templates[string(of.UID)]) {
			waits[subject] = append(waits[subject], p.Name)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(waits)) {
		f.add(Problem, subject, "everynode controller --beside    # or: "+c.Kubectl+" edit pod, and remove the gate",
			"%s for more than %s behind the scheduling gate %s: %s; "+
				"does a controller of Everynode run, and may it patch pods?",
			many(len(waits[subject]), "%d pod waits", "%d pods wait"), long(gatedFor), pinning.Gate,
			some(waits[subject]))
	}
	for _, e := range c.GatesOfOthers {
		if e.InvolvedObject.Kind == "DaemonSet" {
			f.add(Problem, "daemonset/"+e.InvolvedObject.Name+" in "+e.InvolvedObject.Namespace,
				c.Kubectl+" get mutatingwebhookconfigurations,mutatingadmissionpolicies", "%s", e.Message)
		}
	}
}

func writtenGate(f *findings, c *Cluster, ds *appsv1.DaemonSet) {
	remedy := c.Kubectl + " edit daemonset " + ds.Name + " -n " + ds.Namespace
	f.add(Problem, "daemonset/"+ds.Name+" in "+ds.Namespace, remedy,
		"its template has the scheduling gate %s itself: nobody takes it off, and none of its pods starts", pinning.Gate)
}
