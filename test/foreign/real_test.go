package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv/machines"
)

// careful is a policy of which each step says how many canaries there are, and what else.
const careful = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves:
  - {name: canary, count: 1, soak: 5s}
  failure: {max: 0, min: 1, startDeadline: 1m, restarts: 2, then: Rollback}
  content: {configMaps: Referenced, apply: Restart, settle: 1s}
`

// daemonOf is a DaemonSet of a program that ends at once if it cannot work with what it reads.
func daemonOf(image string) string {
	return `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default, labels: {tier: agent}}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - name: agent
        image: "` + image + `"
        imagePullPolicy: Always
        terminationMessagePolicy: FallbackToLogsOnError
        envFrom: [{configMapRef: {name: settings}}]
        volumeMounts: [{name: settings, mountPath: /etc/agent}]
      volumes:
      - {name: settings, configMap: {name: settings}}
`
}

// realNodes are three machines with containers, in a Kubernetes of which nothing is ours but their agents and the
// controller beside kube-controller-manager.
type realNodes struct {
	*beside
	fleet    *machines.Fleet
	registry *movingRegistry
	ended    *endings
	// canary is the machine that the changes reach first.
	canary *machines.Machine
}

// TestRealNodesBesideKubernetes has content and images travel by policy over real containers, whose processes say what
// they run, where kube-controller-manager makes the pods.
func TestRealNodesBesideKubernetes(t *testing.T) {
	c := folder(t)
	r := &realNodes{fleet: machines.New(t, c.everynode, 3)}
	c.certify(r.fleet.Gateway())
	c.startPlane()
	t.Cleanup(func() { r.fleet.Stop(t) })
	r.beside = &beside{cluster: c, front: newFront(t)}
	r.registry = newMovingRegistry(t, r.fleet.Gateway())
	r.fleet.PlainRegistry(t, r.registry.host)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"three machines join", r.join},
		{"a policy takes the daemon over", r.takesOver},
		{"a good edit reaches the canary first", r.goodEdit},
		{"a bad key touches the canary alone, which goes back", r.badEdit},
		{"all nodes run the same bits, though the tag moves", r.pins},
		{"broken bits go back to the old ones", r.brokenBits},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	c.refusals(besideAccount, 100)
}

// join has the machines join as they would with kubeadm: with a bootstrap token, for a certificate.
func (r *realNodes) join(t *testing.T) {
	r.kubectl(t, "apply", "-f", r.write("bootstrap.yaml", bootstrap))
	r.approves()
	for _, m := range r.fleet.All {
		m.Join(t, r.url, r.joins.token)
	}
	r.joined(t, r.fleet.All...)
}

// takesOver has kube-controller-manager run the daemon, and then a policy. It turns content on, which is a change.
func (r *realNodes) takesOver(t *testing.T) {
	r.write("definitions.yaml", r.run(t, "controller", "--print-crds").ends(t, 0).out)
	r.kubectl(t, "apply", "-f", "definitions.yaml")
	r.kubectl(t, "wait", "crd/rolloutpolicies.everynode.io", "crd/daemonsetrollouts.everynode.io",
		"--for=condition=Established", "--timeout=1m")
	r.kubectl(t, "apply", "-f", r.example(t, "beside-rbac.yaml"), "-f", r.example(t, "rollout-roles.yaml"))
	r.kubectl(t, "create", "rolebinding", "content", "--clusterrole=everynode:content",
		"--serviceaccount=kube-system:everynode-beside")
	r.kubectl(t, "apply", "-f", r.write("settings.yaml", settings("info")))
	r.kubectl(t, "apply", "-f", r.write("agent.yaml", daemonOf(r.registry.image("first"))))
	r.run3(t, "info", "")
	log := r.kubectl(t, "logs", r.podOn(t, r.fleet.All[1]).Name)
	if !strings.HasPrefix(log, "level info, bits first ") {
		t.Errorf("the log through Kubernetes' API server is %q", log)
	}
	r.begins(t)
	r.ended = r.watchEndings(t)
	r.kubectl(t, "apply", "-f", r.write("policy.yaml", careful))
	r.stored(t, true)
	r.phase(t, "Complete")
	r.run3(t, "info", "")
}

// goodEdit has the process on one machine read the new level, and the others five seconds later at the earliest.
func (r *realNodes) goodEdit(t *testing.T) {
	seen := r.sample(t, func(f fact) bool { return f.level == "debug" })
	since := time.Now()
	r.kubectl(t, "apply", "-f", r.write("settings.yaml", settings("debug")))
	r.phase(t, "Complete")
	r.run3(t, "debug", "")
	t.Logf("all nodes run the good level %v after the edit", time.Since(since).Round(100*time.Millisecond))
	first := seen()
	names := slices.SortedFunc(maps.Keys(first), func(a, b string) int { return first[a].Compare(first[b]) })
	if len(names) != len(r.fleet.All) || first[names[1]].Sub(first[names[0]]) < 4*time.Second {
		t.Fatalf("the machines had the level at %v, want one five seconds before all others", first)
	}
	for _, m := range r.fleet.All {
		if m.Name == names[0] {
			r.canary = m
		}
	}
}

// badEdit has a level with which the daemon ends at once.
func (r *realNodes) badEdit(t *testing.T) {
	before := r.facts(t)
	bad := r.write("settings.yaml", settings("verbos"))
	plan := r.run(t, "plan", "-f", bad).ends(t, 2).says(t, "DaemonSet default/agent",
		"ConfigMap settings, key level: debug -> verbos", "3 nodes: 3 change", "canary 1 1 0 now", "rest 2 1 0 after canary")
	if strings.Contains(plan.out, "not taken over") {
		t.Errorf("the plan says that the policy does not hold:\n%s", plan.out)
	}
	since := time.Now()
	r.kubectl(t, "apply", "-f", bad)
	await(t, "the daemon ends on the canary", func(context.Context) error {
		return r.ended.on(r.canary.Name, 2, `there is no level "verbos"`)
	})
	t.Logf("the canary's daemon ended for the first time %v after the edit", time.Since(since).Round(100*time.Millisecond))
	r.phase(t, "RolledBack")
	r.run3(t, "debug", "")
	took := time.Since(since)
	t.Logf("all nodes run well again %v after the edit", took.Round(100*time.Millisecond))
	if took > time.Minute {
		t.Errorf("all nodes run well again after %v, want a minute at most", took)
	}
	r.onlyTheCanary(t, before)
	r.ended.only(t, r.canary.Name)
	var is corev1.ConfigMap
	err := json.Unmarshal([]byte(r.kubectl(t, "get", "configmap", "settings", "-o", "json")), &is)
	if err != nil || fmt.Sprint(is.Data) != "map[level:verbos]" || is.Immutable != nil ||
		len(is.Labels)+len(is.OwnerReferences) > 0 {
		t.Errorf("the author's object is %+v (%v)", is, err)
	}
	r.kubectl(t, "apply", "-f", r.write("settings.yaml", settings("debug")))
	r.phase(t, "Complete")
	r.run3(t, "debug", "")
	r.onlyTheCanary(t, before)
}

// onlyTheCanary wants the processes on all other machines to be those that were there before.
func (r *realNodes) onlyTheCanary(t *testing.T, before map[string]fact) {
	t.Helper()
	for name, f := range r.facts(t) {
		if same := f.process == before[name].process; same != (name != r.canary.Name) {
			t.Errorf("that %s has the same process as before is %v: %+v, %+v", name, same, before[name], f)
		}
	}
}

// pins has a tag that names other bits each time that somebody asks for it.
func (r *realNodes) pins(t *testing.T) {
	before := r.facts(t)
	r.kubectl(t, "apply", "-f", r.write("policy.yaml", careful+"  images: Pinned\n"))
	r.pinned(t)
	r.phase(t, "Complete")
	for name, f := range r.facts(t) {
		if f != before[name] {
			t.Errorf("pinning was turned on, and %s runs %+v, before %+v", name, f, before[name])
		}
	}
	bits := map[string]bool{}
	for _, f := range before {
		bits[f.bits] = true
	}
	if len(bits) != len(before) {
		t.Fatalf("without pinning the machines ran %v, want other bits on each: the registry's tag does not move", before)
	}
	r.kubectl(t, "apply", "-f", r.write("agent.yaml", daemonOf(r.registry.image("second"))))
	r.phase(t, "Complete")
	r.run3(t, "debug", r.bits(t))
	who := r.registry.who("second")
	if len(who) != 1 || who[0] != r.canary.IP {
		t.Errorf("%v asked for the tag, want the canary %s alone", who, r.canary.IP)
	}
}

// brokenBits end at once.
func (r *realNodes) brokenBits(t *testing.T) {
	before := r.facts(t)
	since := time.Now()
	r.kubectl(t, "set", "image", "ds/agent", "agent="+r.registry.image("broken"))
	await(t, "the daemon ends on the canary", func(context.Context) error {
		return r.ended.on(r.canary.Name, 2, "these bits are broken")
	})
	r.phase(t, "RolledBack")
	r.run3(t, "debug", before[r.canary.Name].bits)
	t.Logf("all nodes run the old bits again %v after the change", time.Since(since).Round(100*time.Millisecond))
	r.onlyTheCanary(t, before)
	r.ended.only(t, r.canary.Name)
	r.kubectl(t, "apply", "-f", "agent.yaml")
	r.phase(t, "Complete")
	r.run3(t, "debug", before[r.canary.Name].bits)
	r.onlyTheCanary(t, before)
	if who := r.registry.who("second"); len(who) != 1 {
		t.Errorf("%v asked for the tag, want the canary alone", who)
	}
}

// fact is what the daemon's process on a machine is, and reads.
type fact struct {
	process     machines.Process
	level, bits string
}

// fact looks at the process itself.
func (r *realNodes) fact(m *machines.Machine) (f fact, err error) {
	all := m.Containers()
	if len(all) != 1 {
		return f, fmt.Errorf("%s runs %d containers", m.Name, len(all))
	}
	f.process = all[0]
	dir := filepath.Join("/proc", strconv.Itoa(f.process.PID))
	bits, err := os.ReadFile(filepath.Join(dir, "root", "bits"))
	if err != nil {
		return f, err
	}
	file, err := os.ReadFile(filepath.Join(dir, "root", "etc", "agent", "level"))
	if err != nil {
		return f, err
	}
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return f, err
	}
	for _, e := range strings.Split(string(environment), "\x00") {
		if value, is := strings.CutPrefix(e, "level="); is {
			f.level = value
		}
	}
	if f.bits = string(bits); f.level != string(file) || f.level == "" {
		return f, fmt.Errorf("%s has the level %q in its environment, and %q in its file", m.Name, f.level, file)
	}
	return f, nil
}

// facts are those of all machines.
func (r *realNodes) facts(t *testing.T) map[string]fact {
	t.Helper()
	out := map[string]fact{}
	for _, m := range r.fleet.All {
		f, err := r.fact(m)
		if err != nil {
			t.Fatal(err)
		}
		out[m.Name] = f
	}
	return out
}

// sample looks again and again, and returns since when the process on each machine was as it is asked for.
func (r *realNodes) sample(t *testing.T, is func(fact) bool) func() map[string]time.Time {
	t.Helper()
	seen := map[string]time.Time{}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			last := ctx.Err() != nil
			for _, m := range r.fleet.All {
				f, err := r.fact(m)
				if err == nil && is(f) && seen[m.Name].IsZero() {
					seen[m.Name] = time.Now()
				}
			}
			if last {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	return func() map[string]time.Time {
		cancel()
		done.Wait()
		return seen
	}
}

// check wants a machine to run one daemon with that level and these bits, any if none are given, and its one pod to be
// ready and to say the same.
func (r *realNodes) check(ctx context.Context, m *machines.Machine, level, bits string) error {
	f, err := r.fact(m)
	if err != nil {
		return err
	}
	if f.level != level || bits != "" && f.bits != bits {
		return fmt.Errorf("%s runs %+v", m.Name, f)
	}
	list, err := r.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.Name})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("%s has %d pods", m.Name, len(list.Items))
	}
	p := &list.Items[0]
	if p.DeletionTimestamp != nil || len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready {
		return fmt.Errorf("pod %s is %+v", p.Name, p.Status)
	}
	_, digest, _ := strings.Cut(p.Status.ContainerStatuses[0].ImageID, "@")
	says, err := r.registry.bitsOf(digest)
	if err == nil && says != f.bits {
		err = fmt.Errorf("pod %s says that it runs the bits %q, and its process has %q", p.Name, says, f.bits)
	}
	return err
}

// run3 waits until all machines do.
func (r *realNodes) run3(t *testing.T, level, bits string) {
	t.Helper()
	await(t, "all machines run level "+level+" with the bits "+bits, func(ctx context.Context) error {
		for _, m := range r.fleet.All {
			if err := r.check(ctx, m, level, bits); err != nil {
				return err
			}
		}
		return nil
	})
}

// pinned waits until the rollout has a digest, and returns it.
func (r *realNodes) pinned(t *testing.T) (digest string) {
	t.Helper()
	await(t, "the rollout says a digest", func(context.Context) error {
		said := r.kubectl(t, "get", "dsr", "agent", "-o", "jsonpath={.status.images}")
		_, after, found := strings.Cut(said, "sha256:")
		if !found || len(after) < 64 {
			return fmt.Errorf("it says %s", said)
		}
		digest = "sha256:" + after[:64]
		return nil
	})
	return digest
}

// bits are those that the rollout's digest stands for.
func (r *realNodes) bits(t *testing.T) string {
	t.Helper()
	bits, err := r.registry.bitsOf(r.pinned(t))
	if err != nil {
		t.Fatal(err)
	}
	return bits
}

// podOn is the pod of a machine that stays.
func (r *realNodes) podOn(t *testing.T, m *machines.Machine) corev1.Pod {
	t.Helper()
	for _, p := range r.list(t) {
		if p.Spec.NodeName == m.Name && p.DeletionTimestamp == nil {
			return p
		}
	}
	t.Fatalf("%s has no pod", m.Name)
	return corev1.Pod{}
}

// endings are how containers ended by themselves, by node.
type endings struct {
	mu  sync.Mutex
	all map[string][]corev1.ContainerStateTerminated
}

// watchEndings notes how containers end that fail.
func (r *realNodes) watchEndings(t *testing.T) *endings {
	t.Helper()
	e := &endings{all: map[string][]corev1.ContainerStateTerminated{}}
	w, err := r.client.CoreV1().Pods("default").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			p, is := event.Object.(*corev1.Pod)
			if !is {
				continue
			}
			for _, s := range p.Status.ContainerStatuses {
				for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
					if end := state.Terminated; end != nil && end.ExitCode == 2 {
						e.mu.Lock()
						e.all[p.Spec.NodeName] = append(e.all[p.Spec.NodeName], *end)
						e.mu.Unlock()
					}
				}
			}
		}
	}()
	return e
}

// on wants a container to have ended on a node with that code and these words.
func (e *endings) on(node string, code int32, words string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.all[node] {
		if end.ExitCode == code && strings.Contains(end.Message, words) {
			return nil
		}
	}
	return fmt.Errorf("these have ended: %+v", e.all)
}

// only wants none to have failed on another node.
func (e *endings) only(t *testing.T, node string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) != 1 || len(e.all[node]) == 0 {
		t.Errorf("daemons have failed on %v, want %s alone", slices.Collect(maps.Keys(e.all)), node)
	}
}
