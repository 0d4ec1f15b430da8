package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/test/foreign/judge"
)

var (
	roundSeed  = flag.Uint64("seed", 3, "of the first round beside kube-controller-manager; each next one has one more")
	rounds     = flag.Int("rounds", 1, "how many rounds are played")
	roundNodes = flag.Int("nodes", 12, "how many nodes a round begins with")
	roundDeeds = flag.Int("deeds", 0,
		"how many things a round has happen before its faults end; 0 is some of them, once each")
	histories = flag.String("histories", "", "folder that gets the history of each round, one entry a line")
)

// roundFaults deals the nodes out to steps, and has images and content that are bad.
const roundFaults = `labels:
- {key: topology.kubernetes.io/zone, values: [a, b, c]}
- {key: pool, values: [canary, main, main, main, main, main, main, main]}
- {key: rack, values: [r1, r2, r3, r4, r5]}
- {key: room, values: ["yes", "yes", "yes", "yes", "yes", "yes", "no"]}
tags: {move: 5s}
faults:
- {name: level, badContent: {key: level, value: verbos, after: 1s, exitCode: 2}}
- {name: slow, pods: {image: "example.com/mixed*"}, slowPull: {takes: 2s}}
- {name: crashing, pods: {image: "example.com/crash*"}, crash: {after: 1s, exitCode: 3}}
`

// roundSet is a DaemonSet of a round and its policy. Each has its own name as its tier.
type roundSet struct {
	name, then, more string
	reads            bool
	// starts tells that a NodeStartup lists it, ramp that all nodes behind the canaries are one wave that grows, fetch
	// that pods have nodes pull its images before.
	starts, ramp, fetch bool
	// own is the limit that its author wrote; steps and racks those of the policy, and most the largest of its steps so
	// far.
	own, steps, racks, most int
	// placement are the labels of the nodes that it is for, as "key=value".
	image, placement string
	// led tells that its policy is there.
	led bool
}

func (s *roundSet) manifest() string {
	text := strings.NewReplacer("name: agent, namespace", "name: "+s.name+", namespace", "tier: agent", "tier: "+s.name,
		"app: agent", "app: "+s.name, "example.com/agent:1", s.image,
		"maxUnavailable: 3", fmt.Sprint("maxUnavailable: ", s.own)).Replace(agent)
	if s.starts {
		text = strings.Replace(text, "    spec:\n", "    spec:\n"+tolerates, 1)
	}
	if s.reads {
		text = strings.TrimSuffix(text, "}\n") +
			", envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: password}}]}\n"
	}
	return text
}

func (s *roundSet) policy(approval string, soak int) string {
	behind := "name: zones, each: topology.kubernetes.io/zone"
	if s.ramp {
		behind = "name: more, nodes: {}, ramp: {from: 1, factor: 2}"
	}
	before := ""
	if s.fetch {
		before = ", fetch: true, fetchDeadline: 20s"
	}
	return fmt.Sprintf(`apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {matchLabels: {tier: %[1]s}}
  waves:
  - {name: canary, nodes: {matchLabels: {pool: canary}}, soak: %[5]ds, approval: %[4]s, maxUnavailable: %[2]d%[9]s}
  - {%[8]s, maxUnavailable: %[2]d%[9]s}
  domains: [{key: rack, maxUnavailable: %[7]d}]
  failure: {max: 5%%, min: 1, startDeadline: 1m, restarts: 2, then: %[3]s}
  nodeFaults: {max: 60%%}
%[6]s`, s.name, s.steps, s.then, approval, soak, s.more, s.racks, behind, before)
}

// round is one that is played.
type round struct {
	*beside
	*past
	t    *testing.T
	seed uint64
	rand *rand.Rand
	sets []*roundSet
	// flags of each replica, to start it as it was.
	up     []bool
	ill    map[string]bool
	joined int
	tag    int
}

// TestRoundsBesideKubernetes plays rounds of changes and faults that a seed chooses, and has what happened judged by
// its history alone.
func TestRoundsBesideKubernetes(t *testing.T) {
	if *rounds == 0 {
		t.Skip("-rounds says how many are played")
	}
	for i := range *rounds {
		seed := *roundSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { playRound(t, seed) })
	}
}

func playRound(t *testing.T, seed uint64) {
	r := &round{t: t, seed: seed, tag: 1, rand: rand.New(rand.NewPCG(seed, 1)), ill: map[string]bool{}, sets: []*roundSet{
		{name: "plain", then: "Rollback", own: 2, steps: 2, racks: 2, starts: true, image: "example.com/plain:1"},
		{name: "reader", then: "Halt", own: 3, steps: 3, racks: 2, reads: true, image: "example.com/reader:1",
			more: "  content: {configMaps: Referenced, secrets: Referenced, settle: 1s}\n"},
		{name: "pinned", then: "Rollback", own: 2, steps: 2, racks: 1, image: "example.com/pinned:1",
			more: "  images: Pinned\n"},
		{name: "mixed", then: "Rollback", own: 2, steps: 2, racks: 2, reads: true, starts: true, ramp: true, fetch: true,
			image: "example.com/mixed:1",
			more:  "  images: Pinned\n  content: {configMaps: Referenced, secrets: Referenced, settle: 1s}\n"},
	}}
	for _, s := range r.sets {
		s.own, s.steps, s.racks = r.share(s.own), r.share(s.steps), r.share(s.racks)
	}
	r.beside = &beside{cluster: startWith(t, *roundNodes, roundFaults)}
	r.front = newFront(t)
	r.slow = newSlow(t, r.cluster)
	r.past = records(t, r.cluster)
	defer r.judges()
	r.prepare()
	for n, deed := range r.chosen(*roundDeeds) {
		t.Logf("%s %d: %s", time.Now().Format("15:04:05"), n, deed())
		time.Sleep(time.Duration(200+r.rand.IntN(4000)) * time.Millisecond)
	}
	r.calm()
	r.ends()
}

// share is how many nodes of the round's are as many as these of a hundred, and at least these.
func (r *round) share(nodes int) int { return nodes * max(1, *roundNodes/100) }

// patience is for what all nodes take part in, of a hundred or less as long as this.
func (r *round) patience(d time.Duration) time.Duration {
	return d + d*time.Duration(*roundNodes/100)/5
}

// judges says what was not as promised until now, also where the round has ended before its time.
func (r *round) judges() {
	all, pods := r.soFar(r.t), map[string]bool{}
	r.keep(all)
	for i, f := range judge.Judge(all) {
		if r.t.Errorf("%s", f); i == 20 {
			break
		}
	}
	for _, e := range all {
		if e.Pod != nil {
			pods[e.Pod.UID] = true
		}
	}
	r.t.Logf("%d entries, %d pods, %v", len(all), len(pods), all[len(all)-1].At.Sub(all[0].At).Round(time.Second))
}

// keep writes a history down, where somebody wants it.
func (r *round) keep(all []judge.Entry) {
	if *histories == "" {
		return
	}
	var out bytes.Buffer
	for _, e := range all {
		if err := json.NewEncoder(&out).Encode(e); err != nil {
			r.t.Fatal(err)
		}
	}
	err := os.WriteFile(filepath.Join(*histories, fmt.Sprintf("seed-%d.jsonl", r.seed)), out.Bytes(), 0o600)
	if err != nil {
		r.t.Error(err)
	}
}

// prepare has all DaemonSets follow their policies.
func (r *round) prepare() {
	t := r.t
	await(t, "all nodes are there", func(context.Context) error {
		if n := len(r.nodes()); n != *roundNodes {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	r.kubectl(t, "apply", "-f", r.write("definitions.yaml", r.run(t, "controller", "--print-crds").ends(t, 0).out))
	r.kubectl(t, "wait", "crd/rolloutpolicies.everynode.io", "crd/daemonsetrollouts.everynode.io",
		"--for=condition=Established", "--timeout=1m")
	r.kubectl(t, "apply", "-f", r.example(t, "beside-rbac.yaml"), "-f", r.example(t, "rollout-roles.yaml"),
		"-f", r.example(t, "beside-fetch-rbac.yaml"))
	for _, role := range []string{"content", "content-secrets"} {
		r.kubectl(t, "create", "rolebinding", role, "--clusterrole=everynode:"+role,
			"--serviceaccount=kube-system:everynode-beside")
	}
	r.kubectl(t, "apply", "-f", r.write("settings.yaml", settings("info")),
		"-f", r.write("password.yaml", password("first")))
	for _, s := range r.sets {
		r.kubectl(t, "apply", "-f", r.write(s.name+".yaml", s.manifest()))
	}
	r.begins(t, "--fetch-image=example.com/everynode:1")
	r.up = []bool{true, true}
	r.answered()
	r.counts()
	r.starts()
	for _, s := range r.sets {
		r.write(s.name+"-policy.yaml", s.policy("Automatic", 2))
		r.lead(s)
	}
	r.settles("at the beginning")
}

// starts has a NodeStartup close nodes from now on.
func (r *round) starts() {
	var names []string
	for _, s := range r.sets {
		if s.starts {
			names = append(names, s.name)
		}
	}
	r.kubectl(r.t, "wait", "crd/nodestartups.everynode.io", "--for=condition=Established", "--timeout=1m")
	r.kubectl(r.t, "apply", "-f", r.write("startup.yaml", startupOf(names...)))
	r.startups(r.t, true)
	r.startupSays(r.t, plan.DaemonSetsTolerate, metav1.ConditionTrue, "")
	r.add(judge.Entry{Starts: names})
}

// nodes are the names of those that are there, in order.
func (r *round) nodes() (out []string) {
	there := map[string]bool{}
	for _, e := range r.soFar(r.t) {
		if e.Node != nil {
			there[e.Node.Name] = !e.Gone
		}
	}
	for name, is := range there {
		if is {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// settles waits until all is as it must be, within a time that is judged.
func (r *round) settles(when string) {
	r.t.Helper()
	began := time.Now()
	names := []string{}
	for _, s := range r.sets {
		names = append(names, s.name)
	}
	eventually.Nil(r.t, r.patience(6*time.Minute), "all nodes have their target "+when, func(ctx context.Context) error {
		for _, s := range r.sets {
			// Who watches approves what waits.
			r.run(r.t, "rollout", "approve", "daemonset/"+s.name)
		}
		bad := judge.Unsettled(r.soFar(r.t), names)
		if len(bad) > 0 {
			time.Sleep(time.Second)
			return errors.New(strings.Join(bad[:min(5, len(bad))], "; "))
		}
		return nil
	})
	r.t.Logf("it settled %s within %v", when, time.Since(began).Round(time.Second))
}

// calm mends everything but what is written, and has what is wrong go back.
func (r *round) calm() {
	r.slow.by.Store(0)
	r.revive()
	r.heal()
	began := time.Now()
	eventually.Nil(r.t, 2*judge.Known, "what was made wrong goes back", func(context.Context) error {
		if bad := judge.Uncorrected(r.soFar(r.t)); len(bad) > 0 {
			time.Sleep(time.Second)
			return errors.New(strings.Join(bad[:min(5, len(bad))], "; "))
		}
		return nil
	})
	if took := time.Since(began); took > 2*time.Second {
		r.t.Logf("what was made wrong was put right within %v", took.Round(time.Second))
	}
}

// tidies waits until copies that nobody reads are gone. That takes two minutes, so only rounds with an even seed do.
func (r *round) tidies() {
	if r.seed%2 > 0 {
		return
	}
	began := time.Now()
	eventually.Nil(r.t, r.patience(3*time.Minute), "copies that no pod reads go", func(context.Context) error {
		if left := judge.Leftover(r.soFar(r.t)); len(left) > 0 {
			time.Sleep(time.Second)
			return fmt.Errorf("left over are %v", left)
		}
		return nil
	})
	r.t.Logf("what no pod reads was gone within %v", time.Since(began).Round(time.Second))
}

// heal ends what nodes suffer from.
func (r *round) heal() {
	for name := range r.ill {
		_ = r.run(r.t, "kubectl", "annotate", "node", name, "simulated.everynode.io/fault-") // It may have gone.
	}
	clear(r.ill)
}

// ends has good templates, content and policies, and waits.
func (r *round) ends() {
	t, fetched := r.t, r.sees(r.t)
	r.kubectl(t, "apply", "-f", r.write("settings.yaml", settings("final")),
		"-f", r.write("password.yaml", password("final")))
	r.lastVariants()
	for _, s := range r.sets {
		r.lead(s)
		s.image = "example.com/" + s.name + ":final"
		r.write(s.name+".yaml", s.manifest())
		await(t, "the last template is written", func(context.Context) error {
			a := r.run(t, "kubectl", "apply", "-f", s.name+".yaml")
			if hash := placementHash.FindString(a.errOut); hash != "" {
				r.approves(s, "", hash)
			}
			if a.code != 0 {
				return errors.New(a.errOut)
			}
			return nil
		})
		s.placement = ""
		_ = r.run(t, "rollout", "resume", "daemonset/"+s.name) // It may not be paused.
	}
	r.settles("at the end")
	most := 0
	for _, s := range r.sets {
		if s.fetch {
			most = max(s.steps, s.most)
		}
	}
	h := fetched()
	if len(h.Has) == 0 || h.Most > most {
		t.Errorf("pods have fetched images on %d nodes, %d at once, where %d may", len(h.Has), h.Most, most)
	}
	r.vary()
	r.tidies()
	for _, s := range r.sets {
		r.run(t, "kubectl", "diff", "-f", s.name+".yaml").ends(t, 0)
		ds := r.kubectl(t, "get", "ds", s.name, "-o",
			"jsonpath={.spec.updateStrategy.type} {.metadata.annotations.everynode\\.io/update-strategy}")
		if !strings.HasPrefix(ds, "OnDelete {") {
			t.Errorf("DaemonSet %s is stored with %q", s.name, ds)
		}
	}
}
