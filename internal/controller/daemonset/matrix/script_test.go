package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// TestScripts runs testdata/*.txt. A script tells the matrix facts and prints
// what it wants done. The verbs:
//
//	config [burst=N]                       only as the first line
//	daemonset NAME [rev=a] [maxUnavailable=1] [maxSurge=0] [onDelete] [minReady=0]
//	          [selector=k=v] [tolerate=KEY] [held] [deleting]
//	          [live=FROM>TO,...] (between which contents pods go without a restart; a to h stand for contents, - for none)
//	revision NAME rev=a [selector=k=v] [tolerate=KEY]   an earlier template that can be read
//	delete-daemonset NAME
//	node NAME... [label=k=v] [taint=KEY:EFFECT]    adds or replaces
//	delete-node NAME...
//	pod ID [of=DAEMONSET] [node=N] [rev=a] STATE...  adds or changes; states:
//	          why=REASON (the scheduler finds no room) fetched full missing (its node's answer) mounted unmounted pending bound image restarts ready ahead unready failed
//
// succeeded terminating gone adopting adopted unsaid (nothing says any more that it is mounted)
//
//	pods NODE... STATE                     changes every live pod there
//	ready [alone]                          prints the actions and takes them in flight; where
//	                                       nodes wait for a rollout to be stored, it is,
//	                                       and what follows is printed too, unless alone
//	done [ok|failed|unknown|gone|taken|refused=WHY] [unseen] [on=NODE]   answers all that is in
//	                                       flight, or what is about a node; the API's
//	                                       events come along unless unseen, and anyway
//	                                       for what has no answer, or late
//	deliver                                brings the events that are late
//	tick DURATION                          moves time; prints when the next timer is due
//	dump                                   prints the matrix
//	conditions NAME                        prints the DaemonSet's conditions
//	health NODE [fault=WORDS] [silent]     whether a node is out of order, or somebody works on it (maintained)
//	policy NAME [lost|gone|none]           the policy that the DaemonSet's changes follow,
//	                                       from the YAML of its spec; whether it is lost
//	rollout NAME [paused] [approve=REVISION/STEP] [retry=REVISION/COUNT] [abort=REVISION]
//	where NAME                             prints the rollout's status and the verdicts
//
// Run with -rewrite to write the outputs; commit only what you understand.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "rapid") {
			return // what a failed property left
		}
		s := &script{world: newWorld(row.Config{Fetches: true, StatusInterval: time.Second, RetryDelay: time.Second})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if findings := s.m.Audit(); len(findings) > 0 {
				t.Errorf("%s: the audit found %q", d.Pos, findings)
			}
			if out == "" {
				return "ok\n"
			}
			return s.readable(out)
		})
	})
}

// What is told of policies of other DaemonSets, of nodes that are out of order and of
// what ails pods is no difference for a DaemonSet without a policy.
func TestScriptsWithAPolicyElsewhere(t *testing.T) {
	played := 0
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "rapid") || strings.Contains(path, "policy") {
			return
		}
		played++
		s := &script{world: newWorld(row.Config{Fetches: true, StatusInterval: time.Second, RetryDelay: time.Second})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.noise()
			out := s.run(t, d)
			s.noise()
			if out == "" {
				return "ok\n"
			}
			return s.readable(out)
		})
	})
	if played < 20 {
		t.Errorf("only %d scripts were played", played)
	}
}

// noise tells what does not concern a DaemonSet without a policy.
func (s *script) noise() {
	s.m.Step(fact.Rollout{UID: "somebody else's", Policy: &rolloutpolicy.Policy{}})
	s.m.Step(fact.Rollout{UID: "somebody else's", Following: course.Lost, Why: "it is lost"})
	for name := range s.nodes {
		s.m.Step(fact.Health{Name: name, Fault: "it is out of order", Silent: true, Since: s.now})
		s.m.Step(fact.Health{Name: name, Fault: "in maintenance: Drained", Maintained: true})
	}
	for uid, p := range s.pods {
		p.Restarts, p.Trouble, p.Certain, p.Before = p.Restarts+1, "it crashes", true, standing.WasNotAvailable
		s.pods[uid] = p
		s.m.Step(p)
	}
}

type script struct{ *world }

// words are the arguments of a line: plain words, and values by key.
type words struct {
	plain []string
	value map[string]string
}

func parse(d *datadriven.TestData) words {
	w := words{value: map[string]string{}}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			w.plain = append(w.plain, a.Key)
			continue
		}
		w.value[a.Key] = strings.Join(a.Vals, ",")
	}
	return w
}

func (w words) has(word string) bool { return slices.Contains(w.plain, word) }

func (w words) or(key, otherwise string) string {
	if v, ok := w.value[key]; ok {
		return v
	}
	return otherwise
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	a := parse(d)
	switch d.Cmd {
	case "config":
		burst, err := strconv.Atoi(a.or("burst", "250"))
		if err != nil {
			d.Fatalf(t, "burst: %v", err)
		}
		s.world = newWorld(row.Config{Fetches: true, StatusInterval: time.Second, RetryDelay: time.Second, BurstReplicas: burst})
	case "daemonset":
		s.daemonSet(t, d, a)
	case "revision":
		s.revision(types.UID(a.plain[0]), a.or("rev", ""), a.spec())
	case "delete-daemonset":
		s.dropDaemonSet(types.UID(a.plain[0]))
	case "node":
		s.node(a)
	case "delete-node":
		for _, n := range a.plain {
			s.dropNode(n)
		}
	case "pod":
		s.pod(t, d, a)
	case "pods":
		s.changePods(t, d, a)
	case "ready":
		return lines(s.decided(a.has("alone")), "nothing")
	case "done":
		s.done(a)
	case "restart":
		s.restart()
	case "deliver":
		s.deliver()
	case "tick":
		return s.pass(t, d, a)
	case "health":
		h := fact.Health{Name: a.plain[0], Fault: strings.ReplaceAll(a.or("fault", ""), "_", " "),
			Silent: a.has("silent"), Since: s.now, Maintained: a.has("maintained")}
		if h.Maintained {
			h.Since = time.Time{}
		}
		s.health(h)
	case "policy":
		s.policy(t, d, a)
	case "rollout":
		s.rollout(t, d, a)
	case "where":
		return s.where(types.UID(a.plain[0]))
	case "conditions":
		return s.conditions(t, d, types.UID(a.plain[0]))
	case "dump":
		return s.m.Dump().String()
	default:
		d.Fatalf(t, "no such verb: %s", d.Cmd)
	}
	return ""
}

// decided takes the next actions in flight. What must be stored before anything is changed is
// stored.
func (s *script) decided(alone bool) []action.Action {
	out := s.ready()
	for i := 0; i < len(s.inFlight) && !alone; i++ {
		a, ok := s.inFlight[i].(*action.UpdateRollout)
		if !ok {
			continue
		}
		if s.waitsForStage(a) {
			s.finish(i, action.OK, true)
			out = append(out, s.ready()...)
			i = -1
		}
	}
	return out
}

// waitsForStage reports whether nodes wait until the API holds where a rollout stands, which it knows of.
func (s *script) waitsForStage(a *action.UpdateRollout) bool {
	was, stored := s.written[a.UID]
	if st := s.rollouts[a.UID].Status; !stored && st != nil {
		was, stored = *st, st.TargetRevision != ""
	}
	is, _ := s.m.Rollout(a.UID)
	target := is.TargetRevision
	told := !s.cfg.Guest || rolloutpolicy.HasFailed(&is, target) == rolloutpolicy.HasFailed(&was, target)
	return stored && (was.TargetRevision != target || was.Step != is.Step || !told)
}

func lines(actions []action.Action, none string) string {
	var b strings.Builder
	for _, a := range actions {
		fmt.Fprintln(&b, a)
	}
	if b.Len() == 0 {
		return none + "\n"
	}
	return b.String()
}

func (s *script) conditions(t *testing.T, d *datadriven.TestData, uid types.UID) string {
	got := s.m.rows[uid].Conditions()
	want := s.conditionsOf(uid)
	if _, follows := s.rollouts[uid]; follows {
		want.Progressing = got.Progressing // the rollout's own words
	}
	if got != want {
		t.Errorf("%s: conditions computed from nothing are\n%+v", d.Pos, want)
	}
	line := func(name string, c fact.Condition) string {
		return fmt.Sprintf("%s=%s %s: %s\n", name, c.Status, c.Reason, c.Message)
	}
	return line("Available", got.Available) + line("Progressing", got.Progressing)
}

func (s *script) daemonSet(t *testing.T, d *datadriven.TestData, a words) {
	name := a.plain[0]
	old := s.sets[types.UID(name)]
	minReady, err := strconv.Atoi(a.or("minReady", "0"))
	if err != nil {
		d.Fatalf(t, "minReady: %v", err)
	}
	strategy := rollingUpdate(a.or("maxUnavailable", "1"), a.or("maxSurge", "0"))
	if a.has("onDelete") {
		strategy = fact.Strategy{OnDelete: true}
	}
	s.setDaemonSet(fact.DaemonSet{
		UID: types.UID(name), Namespace: "default", Name: name, Generation: old.Generation + 1,
		Revision: withContent(a.or("rev", "a")), Live: a.live(),
		Strategy: strategy, MinReadySeconds: int32(minReady), Held: a.has("held"), Deleting: a.has("deleting"),
		Reported: old.Reported,
	}, a.spec())
}

// live are the ways that a line has.
func (w words) live() *fact.Live {
	if w.or("live", "") == "" {
		return nil
	}
	out := &fact.Live{Settle: 5 * time.Second}
	for _, way := range strings.Split(w.value["live"], ",") {
		from, to, _ := strings.Cut(way, ">")
		out.Ways = append(out.Ways, [2]string{contentID(from), contentID(to)})
	}
	return out
}

// contentID is the ID that a letter stands for.
func contentID(letter string) string {
	if letter == "-" || letter == "" {
		return ""
	}
	return strings.Repeat(letter, 24)
}

// withContent is the revision that a word such as t.a stands for.
func withContent(word string) string {
	if template, letter, is := strings.Cut(word, "."); is {
		return content.Revision(template, contentID(letter))
	}
	return word
}

// spec is a template with the placement rules that a line has.
func (w words) spec() (spec corev1.PodSpec) {
	if v := w.or("selector", ""); v != "" {
		k, v, _ := strings.Cut(v, "=")
		spec.NodeSelector = map[string]string{k: v}
	}
	if v := w.or("tolerate", ""); v != "" {
		spec.Tolerations = []corev1.Toleration{{Key: v, Operator: corev1.TolerationOpExists}}
	}
	return spec
}

func (s *script) node(a words) {
	for _, name := range a.plain {
		n := fact.Node{Name: name}
		if v := a.or("label", ""); v != "" {
			k, v, _ := strings.Cut(v, "=")
			n.Labels = map[string]string{k: v}
		}
		if v := a.or("taint", ""); v != "" {
			k, effect, _ := strings.Cut(v, ":")
			n.Taints = []corev1.Taint{{Key: k, Effect: corev1.TaintEffect(effect)}}
		}
		s.setNode(n)
	}
}

func (s *script) policy(t *testing.T, d *datadriven.TestData, a words) {
	info := s.rolloutOf(types.UID(a.plain[0]))
	if a.has("none") {
		s.dropRollout(info.UID)
		return
	}
	info.Following, info.Why = course.Followed, ""
	if strings.TrimSpace(d.Input) != "" {
		var spec v1alpha1.RolloutPolicySpec
		if err := yaml.UnmarshalStrict([]byte(d.Input), &spec); err != nil {
			d.Fatalf(t, "%v", err)
		}
		p, err := rolloutpolicy.Compile(&spec, time.LoadLocation)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		info.Policy, info.PolicyUID = p, "policy"
	}
	if a.has("lost") {
		info.Following, info.Why = course.Lost, "the policy cannot be read"
	}
	if a.has("gone") {
		info.Following, info.Why, info.Policy = course.Gone, "the policy was deleted", nil
	}
	info.Unread = a.has("unread")
	s.setRollout(info)
}

func (s *script) rollout(t *testing.T, d *datadriven.TestData, a words) {
	info := s.rolloutOf(types.UID(a.plain[0]))
	info.Generation++
	info.Spec = v1alpha1.DaemonSetRolloutSpec{Paused: a.has("paused")}
	if revision, step, ok := strings.Cut(a.or("approve", ""), "/"); ok {
		info.Spec.Approved = &v1alpha1.StepApproval{Revision: revision, Step: step}
	}
	if revision, count, ok := strings.Cut(a.or("retry", ""), "/"); ok {
		n, err := strconv.Atoi(count)
		if err != nil {
			d.Fatalf(t, "retry: %v", err)
		}
		info.Spec.Retry = &v1alpha1.Retry{Revision: revision, Count: int32(n)}
	}
	if revision := a.or("abort", ""); revision != "" {
		info.Spec.Abort = &v1alpha1.Abort{Revision: revision}
	}
	s.setRollout(info)
}

func (s *script) where(uid types.UID) string {
	st, ok := s.m.Rollout(uid)
	if !ok {
		return "follows no policy\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s stable=%s target=%s: %s\n", st.Phase, st.StableRevision, st.TargetRevision, st.Message)
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		verdict, why, _ := s.m.Verdict(uid, name)
		fmt.Fprintf(&b, "  %s %s: %s\n", name, verdict, why)
	}
	return b.String()
}

func (s *script) pod(t *testing.T, d *datadriven.TestData, a words) {
	uid := types.UID(a.plain[0])
	p, ok := s.pods[uid]
	if !ok {
		s.made++
		p = fact.Pod{UID: uid, Name: string(uid), Created: noon.Add(time.Duration(s.made) * time.Millisecond)}
	}
	p.Owner = types.UID(a.or("of", string(p.Owner)))
	p.Node = a.or("node", p.Node)
	if rev, is := a.value["rev"]; is {
		p.Revision = withContent(rev)
	}
	p.Unplaceable = strings.ReplaceAll(a.or("why", p.Unplaceable), "_", " ")
	s.change(t, d, p, a.plain[1:])
}

// changePods takes nodes, then one state.
func (s *script) changePods(t *testing.T, d *datadriven.TestData, a words) {
	last := len(a.plain) - 1
	var here []fact.Pod
	for _, p := range s.pods {
		if slices.Contains(a.plain[:last], p.Node) {
			here = append(here, p)
		}
	}
	slices.SortFunc(here, func(a, b fact.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	for _, p := range here {
		if state := a.plain[last]; p.Terminating == (state == "gone") {
			s.change(t, d, p, []string{state})
		}
	}
}

func (s *script) change(t *testing.T, d *datadriven.TestData, p fact.Pod, states []string) {
	for _, state := range states {
		switch state {
		case "pending":
		case "gated":
			p.Gates = "everynode.io/first-node"
		case "bound":
			p.Bound, p.Unplaceable, p.BoundAt, p.Gates = true, "", s.now, ""
		case "image":
			p.Bound, p.BoundAt, p.Trouble, p.Certain = true, s.now, "container d: image x cannot be pulled", true
		case "restarts":
			p.Restarts, p.Trouble = p.Restarts+1, "container d ended with exit code 1"
		case "ready":
			p.Bound, p.Unplaceable, p.Trouble, p.Certain = true, "", "", false
			if !p.Ready {
				p.Ready, p.ReadySince = true, s.now
			}
		case "ahead": // ready, by a clock that is an hour ahead
			p.Bound, p.Ready, p.ReadySince = true, true, s.now.Add(time.Hour)
		case "mounted":
			p.Mounted, p.Trouble = s.now, ""
		case "unsaid":
			p.Mounted = time.Time{}
		case "unmounted":
			p.Trouble = "volume conf: key agent.conf is not there"
		case "fetched":
			p.Fetch.Reason, p.Fetch.Why = fetch.Fetched, ""
		case "full":
			p.Fetch.Reason, p.Fetch.Why = fetch.NoSpace, "no space left"
		case "missing":
			p.Fetch.Reason, p.Fetch.Why = fetch.NotFound, "agent:2 is not there"
		case "unready":
			p.Ready, p.ReadySince = false, time.Time{}
		case "failed":
			p.Bound, p.Phase, p.Ready, p.ReadySince = true, fact.PodFailed, false, time.Time{}
		case "succeeded":
			p.Bound, p.Phase, p.Ready, p.ReadySince = true, fact.PodSucceeded, false, time.Time{}
		case "terminating":
			p.Terminating = true
		case "adopting":
			p.Adopting = true
		case "adopted":
			p.Adopting = false
		case "gone":
			s.dropPod(p.UID)
			return
		default:
			d.Fatalf(t, "no such pod state: %s", state)
		}
	}
	s.setPod(p)
}

// restart has another process go on with what the API holds.
func (s *script) restart() {
	s.inFlight, s.late = nil, nil
	clear(s.creating)
	clear(s.unanswered)
	clear(s.doomed)
	clear(s.unsure)
	s.m = New(s.cfg)
	s.m.Step(fact.Now{Time: s.now})
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		s.m.Step(s.nodes[name])
	}
	for _, uid := range slices.Sorted(maps.Keys(s.sets)) {
		if info, follows := s.rollouts[uid]; follows {
			s.m.Step(info)
		}
		s.m.Step(s.sets[uid])
	}
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		s.m.Step(s.pods[uid])
	}
}

func (s *script) done(a words) {
	o := action.OK
	switch {
	case a.has("failed"):
		o = action.Failed
	case a.has("unknown"):
		o = action.Unknown
	case a.has("gone"):
		o = action.Gone
	case a.has("taken"):
		o = action.NameTaken
	case a.or("refused", "") != "":
		o, s.refused = action.Failed, strings.ReplaceAll(a.or("refused", ""), "_", " ")
		defer func() { s.refused = "" }()
	}
	for i := 0; i < len(s.inFlight); {
		if on, only := a.value["on"]; only && nodeOf(s.inFlight[i]) != on {
			i++
			continue
		}
		if a.has("anyway") {
			s.event(s.inFlight[i])
		}
		if a.has("late") {
			s.late = append(s.late, s.inFlight[i])
		}
		s.finish(i, o, !a.has("unseen"))
	}
	if !a.has("late") {
		s.late = nil
	}
}

// nodeOf is the node that an action is about.
func nodeOf(a action.Action) string {
	switch a := a.(type) {
	case *action.CreatePod:
		return a.Node
	case *action.DeletePod:
		return a.Node
	case *action.PointPod:
		return a.Node
	case *action.FetchImages:
		return a.Node
	}
	return ""
}

func (s *script) pass(t *testing.T, d *datadriven.TestData, a words) string {
	by, err := time.ParseDuration(a.plain[0])
	if err != nil {
		d.Fatalf(t, "tick: %v", err)
	}
	s.tick(by)
	if at, ok := s.m.NextTick(); ok {
		return fmt.Sprintf("next in %s\n", at.Sub(s.now))
	}
	return "no timer\n"
}
