package loops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
)

// classes are sizes of machines: 2 to 192 cores, with 4Gi for each. Of each five there is one of every class; the first five
// are canaries. Agents with 64 threads fall over.
const classes = `
labels:
- {key: size, values: [xs, s, m, l, xl]}
- {key: ring, values: [canary, canary, canary, canary, canary, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b]}
faults:
- {name: xs, nodes: {matchLabels: {size: xs}}, room: {cpu: "2", memory: 8Gi}}
- {name: s, nodes: {matchLabels: {size: s}}, room: {cpu: "8", memory: 32Gi}}
- {name: m, nodes: {matchLabels: {size: m}}, room: {cpu: "32", memory: 128Gi}}
- {name: l, nodes: {matchLabels: {size: l}}, room: {cpu: "96", memory: 384Gi}}
- {name: xl, nodes: {matchLabels: {size: xl}}, room: {cpu: "192", memory: 768Gi}}
- {name: uses in xs, nodes: {matchLabels: {size: xs}}, pods: {labels: {app: logs}}, outOfMemory: {uses: 56Mi}}
- {name: uses in s, nodes: {matchLabels: {size: s}}, pods: {labels: {app: logs}}, outOfMemory: {uses: 240Mi}}
- {name: uses in m, nodes: {matchLabels: {size: m}}, pods: {labels: {app: logs}}, outOfMemory: {uses: 900Mi}}
- {name: uses in l, nodes: {matchLabels: {size: l}}, pods: {labels: {app: logs}}, outOfMemory: {uses: 2800Mi}}
- {name: uses in xl, nodes: {matchLabels: {size: xl}}, pods: {labels: {app: logs}}, outOfMemory: {uses: 5500Mi}}
- {name: falls over, pods: {env: {THREADS: "64"}}, crash: {exitCode: 2}}`

// startSizedFleet is a fleet of 20 nodes of five classes, with a DaemonSet that is right for the largest.
func startSizedFleet(t *testing.T) *fleet {
	t.Helper()
	faults, err := illness.Parse([]byte(classes))
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{testenv.Start(t, testenv.SimulatedNodes(20), func(o *config.Options) { o.Faults = faults }), t, 20}
	createDaemonSet(t, f.Env, "logs")
	patchDaemonSet(t, f.Env, `{"metadata":{"labels":{"app":"logs"}},"spec":{"template":{"spec":{"containers":[
		{"name":"c","resources":{"requests":{"cpu":"1600m","memory":"6Gi"},"limits":{"memory":"6Gi"}}}]}}}}`)
	return f
}

// vary makes a variant for a class, or changes that.
func (f *fleet) vary(class, patch, share string) {
	f.t.Helper()
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: v1alpha1.DaemonSetVariantSpec{
		DaemonSets: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "logs"}},
		Nodes:      &metav1.LabelSelector{MatchLabels: map[string]string{"size": class}},
		Resources: map[string]v1alpha1.VariantResources{"c": {
			Requests: map[corev1.ResourceName]string{
				"cpu": "node.allocatable.cpu * " + share, "memory": "node.allocatable.memory * " + share},
			Limits: map[corev1.ResourceName]string{"memory": "node.allocatable.memory * " + share}}}}}
	if patch != "" {
		v.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	f.Eventually("the variant is stored", func(ctx context.Context) error {
		has, err := f.own().DaemonSetVariants("default").Get(ctx, class, metav1.GetOptions{})
		if err != nil {
			_, err = f.own().DaemonSetVariants("default").Create(ctx, v, metav1.CreateOptions{})
			return err
		}
		has.Spec = v.Spec
		_, err = f.own().DaemonSetVariants("default").Update(ctx, has, metav1.UpdateOptions{})
		return err
	})
}

// requested are the cores that daemons request, by class if all are ready, and all together; uids are those of the pods
// by node.
func (f *fleet) requested() (byClass map[string]string, cores float64, uids map[string]types.UID) {
	f.t.Helper()
	pods, err := f.Client.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	byClass, uids = map[string]string{}, map[string]types.UID{}
	for i := range pods.Items {
		p := &pods.Items[i]
		var number int
		if _, err := fmt.Sscanf(pod.TargetNode(p), "sim-%d", &number); err != nil {
			f.t.Fatal(err)
		}
		class, cpu := []string{"xs", "s", "m", "l", "xl"}[(number-1)%5], p.Spec.Containers[0].Resources.Requests.Cpu()
		switch has := byClass[class]; {
		case !pod.IsReady(p):
			byClass[class] = "one is not ready"
		case slices.Contains(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "THREADS", Value: "64"}):
			byClass[class] = "one falls over, and may be ready in between"
		case has != "" && has != cpu.String():
			byClass[class] = "differs"
		default:
			byClass[class] = cpu.String()
		}
		cores += cpu.AsApproximateFloat64()
		uids[pod.TargetNode(p)] = p.UID
	}
	return byClass, cores, uids
}

// reserved is the memory that daemons request, in Gi, and starts are their containers with when these began and how often
// they had to begin again.
func (f *fleet) reserved() (gi float64, starts map[string]string) {
	f.t.Helper()
	pods, err := f.Client.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	starts = map[string]string{}
	for i := range pods.Items {
		p := &pods.Items[i]
		gi += p.Spec.Containers[0].Resources.Requests.Memory().AsApproximateFloat64() / (1 << 30)
		for _, c := range p.Status.ContainerStatuses {
			starts[pod.TargetNode(p)] += fmt.Sprintf("%s restarted %d times, %v", c.ContainerID, c.RestartCount, c.State.Running)
		}
	}
	return gi, starts
}

// wantRequests waits until daemons request so much, and each of them is available.
func (f *fleet) wantRequests(want map[string]string) (cores float64, uids map[string]types.UID) {
	f.t.Helper()
	f.Eventually(fmt.Sprintf("daemons request %v", want), func(ctx context.Context) error {
		var got map[string]string
		got, cores, uids = f.requested()
		if fmt.Sprint(got) != fmt.Sprint(want) || len(uids) != int(f.nodes) {
			return fmt.Errorf("on %d nodes they request %v", len(uids), got)
		}
		ds, err := f.Client.AppsV1().DaemonSets("default").Get(ctx, "logs", metav1.GetOptions{})
		if err == nil && ds.Status.NumberAvailable != f.nodes {
			err = fmt.Errorf("the status is %+v", ds.Status)
		}
		return err
	})
	return cores, uids
}

// others are the nodes whose daemon is another pod.
func others(was, is map[string]types.UID) (out []string) {
	for node, uid := range is {
		if was[node] != uid {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

// One DaemonSet with four variants takes less than half of what one size for all would. A changed formula replaces no pod.
// A bad variant stops at the canary of its class, and what it changed goes back; nobody else is touched.
func TestFleetOfFiveSizes(t *testing.T) {
	t.Parallel()
	f := startSizedFleet(t)
	single := 20 * 1.6
	for _, class := range []string{"xs", "s", "m", "l"} {
		f.vary(class, `{"spec":{"containers":[{"name":"c","env":[{"name":"THREADS","value":"`+fmt.Sprint(len(class))+`"}]}]}}`, "0.008")
	}
	want := map[string]string{"xs": "20m", "s": "70m", "m": "260m", "l": "770m", "xl": "1600m"}
	cores, before := f.wantRequests(want)
	if cores > single/2 {
		t.Errorf("daemons request %.2f cores; of one size they would request %.2f", cores, single)
	}
	gi, starts := f.reserved()
	if gi > 20*6.0/2 || len(starts) != 20 {
		t.Errorf("%d daemons request %.1f Gi; of one size 20 would request %d", len(starts), gi, 20*6)
	}
	f.makePolicy("careful", `
waves: [{name: canary, nodes: {matchLabels: {ring: canary}}, soak: 5s}]
failure: {max: 0, restarts: 1, then: Rollback}`)
	f.phase(v1alpha1.PhaseComplete)

	f.vary("m", `{"spec":{"containers":[{"name":"c","env":[{"name":"THREADS","value":"1"}]}]}}`, "0.012")
	want["m"] = "390m"
	_, after := f.wantRequests(want)
	if got := others(before, after); len(got) > 0 {
		t.Errorf("a formula has %v have another pod", got)
	}
	if _, now := f.reserved(); !maps.Equal(starts, now) {
		t.Errorf("containers were %v, and are %v", starts, now)
	}
	f.phase(v1alpha1.PhaseComplete)

	f.vary("m", `{"spec":{"containers":[{"name":"c","env":[{"name":"THREADS","value":"64"}]}]}}`, "0.012")
	r := f.phase(v1alpha1.PhaseRolledBack, "sim-0003")
	if !strings.Contains(r.Status.Message, "1 of") {
		t.Errorf("it says %s", r.Status.Message)
	}
	_, last := f.wantRequests(want)
	if got := others(after, last); fmt.Sprint(got) != "[sim-0003]" {
		t.Errorf("a bad variant has %v have another pod", got)
	}

	if got := f.killed(); len(got) > 0 {
		t.Errorf("of daemons that have enough those on %v were killed for memory", got)
	}
	const right = `{"spec":{"containers":[{"name":"c","env":[{"name":"THREADS","value":"1"}]}]}}`
	f.vary("m", right, "0.012")
	f.phase(v1alpha1.PhaseComplete)
	f.vary("l", right, "0.001")
	f.phase(v1alpha1.PhaseRolledBack, "sim-0004")
	_, now := f.wantRequests(want)
	canary := func(node string) bool { return node == "sim-0004" }
	if got := slices.DeleteFunc(append(f.killed(), others(last, now)...), canary); len(got) > 0 {
		t.Errorf("too little memory for a class has daemons killed on %v too", got)
	}
}

// killed are the nodes whose daemon was killed for memory last.
func (f *fleet) killed() (out []string) {
	f.t.Helper()
	pods, err := f.Client.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			if last := c.LastTerminationState.Terminated; last != nil && last.Reason == "OOMKilled" {
				out = append(out, pods.Items[i].Spec.NodeName)
			}
		}
	}
	slices.Sort(out)
	return out
}
