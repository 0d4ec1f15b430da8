package contents

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

const soaking = `
waves: [{name: canary, count: 1, soak: 1m}, {name: all, percent: 100, soak: 10m}]
failure: {max: 0, min: 1, then: Rollback}
content: {configMaps: Referenced, secrets: Referenced, settle: 5s}`

// withoutContent is a policy that makes content no part of revisions.
func withoutContent(policy string) string { return policy[:strings.Index(policy, "\ncontent:")] }

// random is a world in which anything happens, and what its history allows.
type random struct {
	*world
	t *rapid.T
	// held are the values that the author's ConfigMap has had; "none" for the times without it.
	held map[string]bool
	// canaries are the nodes that were given a target while its canary was under way, by target.
	canaries map[string]map[string]bool
	trace    []string
	// deleted counts the pods that were deleted since something happened, by node; off: content is off.
	deleted map[string]int
	off     bool
}

// newRandom starts one, in which the author's ConfigMap is good.
func newRandom(t *rapid.T) *random {
	r := &random{t: t, held: map[string]bool{"good": true}, canaries: map[string]map[string]bool{}}
	r.world = newWorld(t, soaking)
	r.assigned = r.judge
	r.deletes = func(a *action.DeletePod) {
		if members, _ := r.book.Members(r.set.UID, content.IDOf(a.Next)); r.refuse == nil {
			for _, m := range members {
				if !m.Absent && r.objects[m.CopyRef()] == nil {
					r.Errorf("the pod on %s is deleted for revision %s before its copy %s is there", a.Node, a.Next, m.CopyRef())
				}
			}
		}
		r.deleted[a.Node]++
		if r.deleted[a.Node] > 3 {
			r.Fatalf("the pod on %s is deleted for the %dth time since something happened: %v", a.Node, r.deleted[a.Node], r.trace)
		}
	}
	return r
}

// judge looks at a pod that is made: it has the stable revision or the target that the API holds, what it reads is
// what the author wrote once, and the target is in no step that has not begun.
func (r *random) judge(a *action.CreatePod) {
	st, now := r.decided, r.status()
	if st == nil || content.IDOf(a.Revision) == "" {
		return
	}
	// A node whose pod is missing gets that of another target before the API holds it, and of a stable revision that was
	// named by its template alone what content that has.
	if a.Revision == now.TargetRevision || a.Revision == now.StableRevision && content.IDOf(st.StableRevision) == "" {
		st = &now
	}
	if st.StableRevision != "" && a.Revision != st.StableRevision && a.Revision != st.TargetRevision {
		r.Errorf("%s gets revision %s; stable is %s and the target %s", a.Node, a.Revision, st.StableRevision, st.TargetRevision)
	}
	members, _ := r.book.Members(r.set.UID, content.IDOf(a.Revision))
	for _, m := range members {
		if !m.Absent && r.objects[m.CopyRef()] == nil {
			r.Errorf("%s gets revision %s before its copy %s is there", a.Node, a.Revision, m.CopyRef())
		}
	}
	if value := r.reads(a.Revision); !r.held[value] {
		r.Errorf("%s gets %q, which the author never wrote", a.Node, value)
	}
	if st.StableRevision == "" || st.StableRevision == st.TargetRevision || a.Revision != st.TargetRevision || st.Step != "canary" {
		return
	}
	if r.canaries[a.Revision] == nil {
		r.canaries[a.Revision] = map[string]bool{}
	}
	r.canaries[a.Revision][a.Node] = true
	if len(r.canaries[a.Revision]) > 1 {
		r.Errorf("the canary of %s is on nodes %v, want one", a.Revision, r.canaries[a.Revision])
	}
}

// happen has one thing happen.
func (r *random) happen() {
	nodes := []string{"n0", "n1", "n2", "n3", "n4"}
	what := rapid.SampledFrom([]string{"write", "write", "secret", "edit", "vanish", "restart", "die", "lose", "replace", "quota", "stuck", "cut", "cut", "narrow", "turn", "blind", "abort", "pass", "pass", "long"}).Draw(r.t, "what")
	r.trace = append(r.trace, what)
	r.deleted = map[string]int{}
	switch what {
	case "turn":
		r.turn()
	case "narrow":
		r.narrow()
	case "abort":
		if r.stored != nil && r.stored.StableRevision != r.stored.TargetRevision && r.stored.StableRevision != "" {
			r.abort()
		}
	case "write":
		value := rapid.SampledFrom([]string{"good", "bad", "a", "b"}).Draw(r.t, "value")
		r.held[value] = true
		r.write(value)
		r.recover()
	case "secret":
		value := rapid.SampledFrom([]string{"hunter2", "hunter3"}).Draw(r.t, "token")
		r.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token"}, Data: map[string][]byte{"token": []byte(value)}})
		r.settle()
	case "edit":
		r.edit()
	case "vanish":
		r.held["none"] = true
		if r.objects[confRef] != nil {
			r.drop(confRef)
			r.recover()
		}
	case "restart":
		r.crash()
	case "blind":
		r.startBlind(time.Duration(rapid.IntRange(1, 60).Draw(r.t, "seconds")) * time.Second)
	case "die":
		if node := rapid.SampledFrom(nodes).Draw(r.t, "node"); r.pods[node].UID != "" {
			r.book.Step(podGone(r.world, node))
			r.settle()
		}
	case "lose":
		r.lose()
	case "replace":
		r.replace()
	case "quota":
		if r.refuse == nil {
			r.refuse = func(*Job) string { return "no room" }
		} else {
			r.refuse = nil
		}
	case "stuck":
		if r.keeps == nil {
			r.keeps = cannotDelete
		} else {
			r.keeps = nil
		}
	case "cut":
		r.cut(rapid.IntRange(0, 3).Draw(r.t, "after"), rapid.Bool().Draw(r.t, "made"))
	case "pass":
		r.pass(time.Duration(rapid.IntRange(1, 60).Draw(r.t, "seconds")) * time.Second)
	case "long":
		r.pass(20 * time.Minute)
	}
}

// recover has pods without content come up that read the author's ConfigMap again: containers that end are restarted.
func (r *random) recover() {
	for _, node := range slices.Sorted(maps.Keys(r.pods)) {
		if p := r.pods[node]; !p.Ready && content.IDOf(p.Revision) == "" && r.reads(p.Revision) != "bad" {
			p.Ready, p.ReadySince, p.Trouble, p.Certain, p.Cause = true, r.now, "", false, ""
			r.pods[node] = p
			r.book.Step(p)
		}
	}
	r.settle()
}

// cut has the connection end at one of the next writes, which is done or not. The author writes something.
func (r *random) cut(after int, done bool) {
	r.interrupts = func(metav1.Object) (ends, made bool) {
		if after--; after >= 0 {
			return false, true
		}
		r.interrupts = nil
		return true, done
	}
	value := rapid.SampledFrom([]string{"good", "a", "b", "c"}).Draw(r.t, "value")
	r.held[value] = true
	r.write(value)
	r.recover()
}

// narrow has Secrets be content no more.
func (r *random) narrow() {
	if !r.off {
		r.policy = r.compile(strings.Replace(soaking, "secrets: Referenced, ", "", 1))
		r.tellPolicy()
		r.settle()
	}
}

// turn turns content off, or on again.
func (r *random) turn() {
	r.off = !r.off
	text := soaking
	if r.off {
		text = withoutContent(soaking)
	}
	r.policy = r.compile(text)
	r.tellPolicy()
	r.settle()
}

// crash has the controller end in the middle of its writes, and another one begin.
func (r *random) crash() {
	jobs, actions := r.work()
	for _, j := range jobs {
		j.Make = j.Make[:rapid.IntRange(0, len(j.Make)).Draw(r.t, "made")]
		r.carryOut(j)
	}
	for _, a := range actions {
		if rapid.Bool().Draw(r.t, "done") {
			r.act(a)
		}
	}
	r.start(true)
}

// lose has somebody delete a copy, while there is room to make it again.
func (r *random) lose() {
	r.refuse, r.interrupts = nil, nil
	r.pass(2 * time.Minute)
	for _, ref := range sorted(r.objects) {
		if is := r.objects[ref].GetLabels()[content.Label]; is != "" && rapid.Bool().Draw(r.t, "lost") {
			r.drop(ref)
			return
		}
	}
}

// replace has somebody put another object in place of a copy or a list for a while, which nobody owns. A pod is lost
// meanwhile.
func (r *random) replace() {
	r.refuse, r.interrupts = nil, nil
	r.pass(2 * time.Minute)
	for _, ref := range sorted(r.objects) {
		is := r.objects[ref].GetLabels()[content.Label]
		if ref.Kind != content.ConfigMap || is == "" || !rapid.Bool().Draw(r.t, "replaced") {
			continue
		}
		data, labels := map[string]string{"agent.conf": "evil"}, map[string]string{}
		if is == content.IsManifest {
			data = falseList(r.objects[ref])
		}
		if rapid.Bool().Draw(r.t, "labeled") {
			labels[content.Label] = is
		}
		r.inPlaceOf(ref, data, rapid.Bool().Draw(r.t, "immutable"), labels)
		if node := rapid.SampledFrom([]string{"n0", "n3"}).Draw(r.t, "node"); r.pods[node].UID != "" {
			r.book.Step(podGone(r.world, node))
		}
		r.pass(time.Duration(rapid.IntRange(1, 300).Draw(r.t, "seconds")) * time.Second)
		if o := r.objects[ref]; o != nil && len(o.GetOwnerReferences()) == 0 {
			r.drop(ref)
		}
		return
	}
}

// rest ends what happens, and checks that all is as it should be: liveness, also without content, and that no copy is
// left over.
func (r *random) rest() {
	r.refuse, r.keeps, r.interrupts, r.held["last"], r.deleted = nil, nil, nil, true, map[string]int{}
	r.write("last")
	r.recover()
	if slices.Contains(r.trace, "narrow") && !r.off {
		r.policy = r.compile(soaking)
		r.tellPolicy()
		r.settle()
	}
	if slices.Contains(r.trace, "turn") {
		r.edit() // what has failed while content was off does not go out by what is written
	}
	if r.off {
		for range 10 {
			r.pass(10 * time.Minute)
		}
		r.wantPhase(complete, "5 of 5")
		r.turn()
	}
	for range 10 {
		r.pass(10 * time.Minute)
	}
	r.wantPhase(complete, "5 of 5")
	r.wantRuns(map[string]int{"last": 5})
	if r.copies() != 3 {
		r.Errorf("there are %d copies, want those of one content", r.copies())
	}
	r.end()
}

// end has content be no part of revisions for good, or the policy go, while controllers die: in the end no copy is
// left.
func (r *random) end() {
	if r.policy = nil; rapid.Bool().Draw(r.t, "keeps its policy") {
		r.policy = r.compile(withoutContent(soaking))
	}
	r.deleted = map[string]int{}
	r.tellPolicy()
	r.edit()
	for range rapid.IntRange(0, 5).Draw(r.t, "deaths") {
		r.pass(time.Duration(rapid.IntRange(1, 1200).Draw(r.t, "seconds")) * time.Second)
		r.crash()
	}
	for range 10 {
		r.pass(10 * time.Minute)
	}
	if r.copies() != 0 || r.reading[content.ConfigMap] {
		st := r.status()
		r.Errorf("without content there are %d copies; the namespace is read: %t; the rollout is %s: %s", r.copies(),
			r.reading[content.ConfigMap], st.Phase, st.Message)
	}
}

// Templates and content are edited at random, content is turned off and on, changes are aborted, pods and copies go,
// writes are refused, and the controller starts again, also while no policy can be read: no node gets what was not
// assigned to it, no pod is made again and again, none refers to a copy that is gone (world.check), and no copy is left
// over.
func TestRandomChangesOfContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRandom(t)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			r.happen()
		}
		r.rest()
		if t.Failed() {
			t.Fatal(fmt.Sprint(r.trace))
		}
	})
}
