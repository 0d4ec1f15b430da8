package foreign

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/test/foreign/judge"
)

// deed is something that happens in a round, and how often by comparison. A short round has each of what is once in
// the order that its seed chooses.
type deed struct {
	weight int
	once   bool
	do     func() string
}

func (r *round) deeds() []deed {
	return []deed{
		{5, false, r.newTemplate}, {3, true, r.newContent}, {2, true, r.newSecret}, {5, false, r.verb}, {2, true, r.editPolicy},
		{1, true, r.dropPolicy}, {2, true, r.moves}, {4, false, r.losePods}, {2, true, r.evicts}, {2, false, r.nodeIsIll},
		{2, false, r.nodeGoes}, {1, false, r.nodesJoin}, {2, false, r.killOne}, {2, false, r.killBoth}, {3, false, r.killInTheMiddle},
		{1, true, r.wrongAndRight},
		{3, true, r.joinInTheMiddle}, {2, true, r.failsTwice}, {1, false, r.cutOff}, {1, false, r.killManager},
		{1, true, r.killServer}, {4, true, r.revives}, {2, true, r.lags},
		{4, true, r.newVariants},
	}
}

// chosen are what happens in the round: so many by chance, or those of a short round.
func (r *round) chosen(many int) (out []func() string) {
	all, sum := r.deeds(), 0
	for _, d := range all {
		if sum += d.weight; d.once && many == 0 {
			out = append(out, d.do)
		}
	}
	r.rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	for range many {
		at := r.rand.IntN(sum)
		out = append(out, all[slices.IndexFunc(all, func(d deed) bool { at -= d.weight; return at < 0 })].do)
	}
	return out
}

func (r *round) set() *roundSet { return r.sets[r.rand.IntN(len(r.sets))] }

// ledSet is one with a policy, if there is one.
func (r *round) ledSet() *roundSet {
	first := r.rand.IntN(len(r.sets))
	for i := range r.sets {
		if s := r.sets[(first+i)%len(r.sets)]; s.led {
			return s
		}
	}
	return r.sets[first]
}

// tries is what somebody does, whether it is refused or not.
func (r *round) tries(args ...string) string {
	a := r.run(r.t, args...)
	if a.code != 0 {
		return fmt.Sprintf("%s (refused: %s)", a.line, strings.TrimSpace(a.errOut))
	}
	return a.line
}

func (r *round) newTemplate() string {
	s := r.ledSet()
	r.tag++
	image := []string{fmt.Sprintf("example.com/%s:%d", s.name, r.tag), fmt.Sprintf("example.com/%s:%d", s.name, r.tag),
		"example.com/" + s.name + ":1", fmt.Sprintf("example.com/crash:%d", r.tag), "example.com/" + s.name + ":fail"}[r.rand.IntN(5)]
	return r.tries("kubectl", "set", "image", "ds/"+s.name, "agent="+image)
}

func (r *round) newContent() string {
	level := []string{"info", "debug", "verbos", fmt.Sprint("level-", r.rand.IntN(100))}[r.rand.IntN(4)]
	return level + ": " + r.tries("kubectl", "apply", "-f", r.write("settings.yaml", settings(level)))
}

func password(is string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: password, namespace: default}\nstringData: {password: " + is + "}\n"
}

func (r *round) newSecret() string {
	return r.tries("kubectl", "apply", "-f", r.write("password.yaml", password(fmt.Sprint("p", r.rand.IntN(4)))))
}

func (r *round) verb() string {
	s, verb := r.set(), []string{"approve", "pause", "resume", "resume", "abort", "retry", "free"}[r.rand.IntN(7)]
	switch verb {
	case "retry":
		r.add(judge.Entry{Retries: s.name})
	case "free":
		if !s.led {
			r.add(judge.Entry{Frees: s.name})
		}
		return r.tries("rollout", "approve", "--step", "WithoutPolicy", "daemonset/"+s.name)
	}
	return r.tries("rollout", verb, "daemonset/"+s.name)
}

// limits notes what the policy allows from now on, or what the author does where there is none.
func (r *round) limits(s *roundSet) {
	of := map[string]int{"": s.own, "canary": 0, "zones": 0, "rack": 0}
	switch {
	case s.led && s.ramp: // no label tells the step of a node
		of = map[string]int{"": 0, "canary": s.steps, "zones": 0, "rack": s.racks}
	case s.led:
		of = map[string]int{"": 0, "canary": s.steps, "zones": s.steps, "rack": s.racks}
	}
	for kind, most := range of {
		r.add(judge.Entry{Limit: &judge.Limit{Set: s.name, Of: kind, Max: most}})
	}
}

// lead has a DaemonSet's policy be as it was last written.
func (r *round) lead(s *roundSet) string {
	s.led = true
	r.limits(s)
	return r.tries("kubectl", "apply", "-f", s.name+"-policy.yaml")
}

func (r *round) editPolicy() string {
	s := r.set()
	s.most = max(s.most, s.steps)
	s.steps, s.racks = r.share(1+r.rand.IntN(4)), r.share(1+r.rand.IntN(2))
	r.write(s.name+"-policy.yaml", s.policy([]string{"Automatic", "Automatic", "Manual"}[r.rand.IntN(3)], r.rand.IntN(5)))
	return r.lead(s)
}

func (r *round) dropPolicy() string {
	s := r.set()
	s.led = false
	r.limits(s)
	return r.tries("kubectl", "delete", "--ignore-not-found", "rolloutpolicy", s.name)
}

// placementHash is how a placement is approved.
var placementHash = regexp.MustCompile("sha256:[0-9a-f]{64}")

func (r *round) approves(s *roundSet, placement, hash string) string {
	r.add(judge.Entry{Approves: &judge.Stored{Set: s.name, Placement: placement}})
	return r.tries("rollout", "approve", "daemonset/"+s.name, "--placement", hash)
}

// moves has a DaemonSet be for other nodes. Where that is refused, somebody approves it half of the time.
func (r *round) moves() string {
	s := r.ledSet()
	to, edit := "room=yes", `{"spec":{"template":{"spec":{"nodeSelector":{"room":"yes"}}}}}`
	if s.placement != "" {
		to, edit = "", `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`
	}
	writes := func() answer { return r.run(r.t, "kubectl", "patch", "ds/"+s.name, "--type=merge", "-p", edit) }
	a := writes()
	out := fmt.Sprintf("%s for nodes with %q: %s", s.name, to, strings.TrimSpace(a.errOut))
	if hash := placementHash.FindString(a.errOut); hash != "" && r.rand.IntN(2) == 0 {
		out += "; " + r.approves(s, to, hash)
		a = writes()
		out += "; " + strings.TrimSpace(a.out+a.errOut)
	}
	if a.code == 0 {
		s.placement = to
	}
	return out
}

// evicts has pods go as a drain does.
func (r *round) evicts() string {
	name, out := r.node(), "evict"
	for _, s := range r.sets {
		list, err := r.client.CoreV1().Pods("default").List(r.t.Context(), metav1.ListOptions{
			LabelSelector: "app=" + s.name, FieldSelector: "spec.nodeName=" + name})
		if err != nil {
			return "nobody is evicted: " + err.Error()
		}
		for i := range list.Items {
			p := &list.Items[i]
			r.add(judge.Entry{Touches: string(p.UID)})
			err = r.client.CoreV1().Pods("default").EvictV1(r.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name}})
			out += fmt.Sprintf(" %s (%v)", p.Name, err)
		}
	}
	return out
}

// begun has a new good template of a DaemonSet, and waits until its first step has begun, or for some time.
func (r *round) begun(s *roundSet) string {
	r.revive()
	r.tag++
	out := r.tries("kubectl", "set", "image", "ds/"+s.name, fmt.Sprintf("agent=example.com/%s:%d", s.name, r.tag))
	r.comes(s, "{.status.step}", func(is string) bool { return is == "canary" })
	return out
}

// killInTheMiddle has pods of a change that has begun be made while nobody answers.
func (r *round) killInTheMiddle() string {
	s := r.ledSet()
	out := r.begun(s)
	r.kills(0, 1)
	return out + ", kill both replicas, " + r.loses(s, 3)
}

// wrongAndRight has what is made while nobody answers be put right before anything else happens.
func (r *round) wrongAndRight() string {
	out := r.killInTheMiddle()
	time.Sleep(2 * time.Second)
	r.calm()
	return out + ", and what was wrong goes back"
}

// failsTwice has a template that fails go out, a good one after it, and then the one that failed again, with other
// leaders in between.
func (r *round) failsTwice() string {
	r.revive()
	s := r.ledSet()
	r.tag++
	bad := fmt.Sprintf("agent=example.com/crash:%d", r.tag)
	out := r.tries("kubectl", "set", "image", "ds/"+s.name, bad)
	out += ", " + r.comes(s, "{.status.phase}", func(is string) bool { return is == "Halted" || is == "RolledBack" })
	r.kills(0, 1)
	r.revive()
	const target = "{.status.targetRevision}"
	failed := r.comes(s, target, func(string) bool { return true })
	out += ", other leaders, " + r.tries("kubectl", "set", "image", "ds/"+s.name, fmt.Sprintf("agent=example.com/%s:%d", s.name, r.tag))
	good := r.comes(s, target, func(is string) bool { return is != failed })
	out += ", " + r.tries("kubectl", "set", "image", "ds/"+s.name, bad)
	return out + ", " + r.comes(s, target, func(is string) bool { return is != good })
}

// comes waits for some time until a rollout says something.
func (r *round) comes(s *roundSet, path string, done func(string) bool) string {
	for range 100 {
		is := r.run(r.t, "kubectl", "get", "dsr", s.name, "-o", "jsonpath="+path)
		if done(is.out) {
			return is.out
		}
		time.Sleep(300 * time.Millisecond)
	}
	return "nothing comes of it"
}

// joinInTheMiddle has nodes join a change that has begun.
func (r *round) joinInTheMiddle() string { return r.begun(r.ledSet()) + ", " + r.nodesJoin() }

// losePods deletes some, by their nodes or one by one.
func (r *round) losePods() string { return r.loses(nil, 1+r.rand.IntN(4)) }

// loses deletes pods of one DaemonSet, or of any.
func (r *round) loses(of *roundSet, many int) string {
	there := map[string]*judge.Pod{}
	for _, e := range r.soFar(r.t) {
		if e.Pod != nil {
			there[e.Pod.Set+" "+e.Pod.Node] = e.Pod
			if e.Gone || e.Pod.Going {
				delete(there, e.Pod.Set+" "+e.Pod.Node)
			}
		}
	}
	nodes, out := r.nodes(), []string{}
	for range many {
		s := of
		if s == nil {
			s = r.set()
		}
		p := there[s.name+" "+nodes[r.rand.IntN(len(nodes))]]
		if p == nil {
			continue
		}
		r.add(judge.Entry{Touches: p.UID})
		list := r.run(r.t, "kubectl", "delete", "pod", "-l", "app="+p.Set, "--field-selector=spec.nodeName="+p.Node, "--wait=false")
		out = append(out, p.Set+" on "+p.Node+" "+strings.TrimSpace(list.errOut))
	}
	return "delete " + strings.Join(out, ", ")
}

func (r *round) node() string {
	nodes := r.nodes()
	name := nodes[r.rand.IntN(len(nodes))]
	r.add(judge.Entry{Touches: name})
	return name
}

func (r *round) nodeIsIll() string {
	name := r.node()
	r.ill[name] = true
	return r.tries("kubectl", "annotate", "--overwrite", "node", name,
		"simulated.everynode.io/fault="+[]string{"powerLoss", "notReady", `{powerLoss: {for: 20s}}`}[r.rand.IntN(3)])
}

func (r *round) nodeGoes() string {
	if len(r.nodes()) <= *roundNodes*3/4 {
		return "no more nodes go"
	}
	return r.tries("kubectl", "delete", "node", r.node())
}

func (r *round) nodesJoin() string {
	if !r.serverAnswers() || r.joined == 3 {
		return "no nodes join"
	}
	r.joined++
	prefix := fmt.Sprintf("late%d-", r.joined)
	for n := range 3 {
		r.eager(r.t, fmt.Sprintf("%s%04d", prefix, n+1))
	}
	r.simulateMore(prefix, 3, roundFaults)
	return "three nodes join"
}

func (r *round) serverAnswers() bool {
	return r.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Timeout(2*time.Second).Do(r.t.Context()).Error() == nil
}

// killed ends replicas without a word. A request that one was about to answer goes on without it.
func (r *round) kills(which ...int) {
	r.add(judge.Entry{Silent: true})
	for _, i := range which {
		if r.up[i] {
			r.kill(r.t, r.replicas[i])
			r.up[i] = false
		}
	}
	if r.up[0] || r.up[1] {
		r.answered()
	}
}

func (r *round) killOne() string {
	i := r.rand.IntN(2)
	r.kills(i)
	return fmt.Sprint("kill replica ", i)
}

func (r *round) killBoth() string {
	r.kills(0, 1)
	return "kill both replicas, " + r.losePods()
}

func (r *round) revives() string {
	r.revive()
	return "start replicas again"
}

// revive starts all replicas that do not run.
func (r *round) revive() {
	for i, up := range r.up {
		if !up {
			r.replicas[i] = r.again(r.replicas[i])
			r.up[i] = true
		}
	}
	r.answered()
}

// answered waits until a replica is ready, and notes it.
func (r *round) answered() {
	await(r.t, "a replica is ready", func(ctx context.Context) (err error) {
		for i, at := range r.shows {
			if r.up[i] {
				if err = reachable(ctx, at); err != nil {
					return err
				}
			}
		}
		return err
	})
	r.add(judge.Entry{Answers: true})
}

// cutOff has nobody reach the replicas for a while.
func (r *round) cutOff() string {
	r.add(judge.Entry{Silent: true})
	heard := r.front.to.Swap(nil)
	r.front.cut()
	out := r.losePods()
	time.Sleep(time.Duration(r.rand.IntN(8000)) * time.Millisecond)
	r.front.to.Store(heard)
	if r.up[0] || r.up[1] {
		r.answered()
	}
	return "nobody is reached for a while, and " + out
}

// lags has all that watches bring to the second replica come half a minute late, or in time again.
func (r *round) lags() string {
	if r.slow.by.Swap(0) > 0 {
		return "the second replica sees in time again what happens"
	}
	r.slow.by.Store(int64(30 * time.Second))
	return "the second replica sees half a minute late what happens"
}

func (r *round) killManager() string {
	r.kill(r.t, r.manager)
	time.Sleep(time.Duration(r.rand.IntN(5000)) * time.Millisecond)
	r.manager = r.again(r.manager)
	return "kube-controller-manager is killed, and starts again"
}

// killServer kills the API server. What it was about to write may have been answered by nobody.
func (r *round) killServer() string {
	r.add(judge.Entry{Silent: true})
	r.kill(r.t, r.plane[1])
	time.Sleep(time.Duration(r.rand.IntN(3000)) * time.Millisecond)
	r.plane[1] = r.again(r.plane[1])
	await(r.t, "the API server is ready", func(context.Context) error {
		if !r.serverAnswers() {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	if r.up[0] || r.up[1] {
		r.answered()
	}
	return "the API server is killed, and starts again"
}
