package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
		{"a first node without the registry gives way", r.registryAway},
		{"a node that is lost and joins again gets what is its own", r.lost},
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
	r.grants(t)
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
	r.saysDigest(t, "agent", "sha256:")
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
	r.getBits(t, "second", "debug")
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

// registryAway has the canary's machine be refused by the registry.
func (r *realNodes) registryAway(t *testing.T) {
	old := r.bits(t)
	r.kubectl(t, "apply", "-f", r.write("two.yaml", strings.NewReplacer("count: 1", "count: 2", "max: 0", "max: 1").
		Replace(careful)+"  images: Pinned\n"))
	host, port, _ := strings.Cut(r.registry.host, ":")
	r.canary.Run(t, "nft", "add table ip away; add chain ip away out { type filter hook output priority 0; }; "+
		"add rule ip away out ip daddr "+host+" tcp dport "+port+" reject with tcp reset")
	since := time.Now()
	// One node without its daemon does not keep the last one from its turn.
	r.kubectl(t, "apply", "-f", r.write("agent.yaml", strings.Replace(daemonOf(r.registry.image("third")), "  selector:",
		"  updateStrategy: {rollingUpdate: {maxUnavailable: 2}}\n  selector:", 1)))
	await(t, "the other machines run the same new bits", func(context.Context) error {
		have := map[string]int{}
		for _, m := range r.fleet.All {
			f, err := r.fact(m)
			if m != r.canary && err != nil {
				return err
			}
			if m != r.canary {
				have[f.bits]++
			}
		}
		if len(have) != 1 || have[old] > 0 {
			return fmt.Errorf("they run %v", have)
		}
		return nil
	})
	t.Logf("the other nodes ran it %v after the change", time.Since(since).Round(100*time.Millisecond))
	r.run(t, "why", "daemonset/agent").ends(t, 0).says(t, r.canary.Name, "cannot be pulled")
	r.canary.Run(t, "nft", "delete table ip away")
	r.getBits(t, "third", "debug")
	if who := r.registry.who("third"); len(who) != 1 || who[0] == r.canary.IP {
		t.Errorf("%v asked for the tag, want one, and not the canary", who)
	}
}

// lost has one machine be lost with its disk in the middle of a change, and the canary lose its power.
func (r *realNodes) lost(t *testing.T) {
	r.kubectl(t, "apply", "-f", r.write("policy.yaml", strings.Replace(careful, "soak: 5s", "approval: Manual", 1)+
		"  images: Pinned\n"))
	bits := r.bits(t)
	r.kubectl(t, "apply", "-f", r.write("settings.yaml", settings("warn")))
	r.phase(t, "WaitingForApproval")
	r.runsWith(t, r.canary, "warn", bits)
	other := r.fleet.All[0]
	if other == r.canary {
		other = r.fleet.All[2]
	}
	r.runsWith(t, other, "debug", bits)
	pod := r.podOn(t, other)
	other.PowerOff(t)
	r.kubectl(t, "delete", "node", other.Name)
	r.kubectl(t, "delete", "pod", pod.Name, "--force", "--grace-period=0")
	other.Erase(t)
	other.Boot(t)
	other.Join(t, r.url, r.joins.token)
	r.joined(t, other)
	r.runsWith(t, other, "debug", bits)
	if again := r.podOn(t, other); again.UID == pod.UID {
		t.Errorf("it has the pod %s that it had before", pod.Name)
	}

	was := r.podOn(t, r.canary)
	r.canary.PowerOff(t)
	r.canary.Boot(t)
	r.canary.Join(t, r.url, "")
	r.runsWith(t, r.canary, "warn", bits)
	if again := r.podOn(t, r.canary); again.UID != was.UID {
		t.Errorf("the canary has the pod %s, and had %s", again.Name, was.Name)
	}
	r.phase(t, "WaitingForApproval")
	r.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	r.phase(t, "Complete")
	r.run3(t, "warn", bits)
}
