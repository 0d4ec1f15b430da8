package rollouts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// rows notes what a matrix is told.
type rows struct {
	told     map[types.UID]fact.Rollout
	statuses map[types.UID]v1alpha1.DaemonSetRolloutStatus
	gone     []types.UID
	keeps    map[types.UID]bool
	left     string
}

func (r *rows) Keeps(uid types.UID) bool { return r.keeps[uid] }

func (r *rows) Left(types.UID) string { return r.left }

func (r *rows) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.Rollout:
		r.told[e.UID] = e
	case fact.RolloutGone:
		delete(r.told, types.UID(e))
		r.gone = append(r.gone, types.UID(e))
	}
}

func (r *rows) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	s, ok := r.statuses[uid]
	return s, ok
}

type world struct {
	*Book
	rows    *rows
	version int
	now     time.Time
}

func newWorld() *world {
	r := &rows{told: map[types.UID]fact.Rollout{}, statuses: map[types.UID]v1alpha1.DaemonSetRolloutStatus{}}
	w := &world{Book: New(r, time.LoadLocation), rows: r, now: noon}
	w.Step(Now{noon})
	return w
}

func (w *world) object(name, uid string) metav1.ObjectMeta {
	w.version++
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Generation: int64(w.version),
		ResourceVersion: fmt.Sprint(w.version), CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(w.version) * time.Minute))}
}

func (w *world) daemonSet(name, uid string, change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: w.object(name, uid)}
	ds.Labels = map[string]string{"tier": name}
	for _, c := range change {
		c(ds)
	}
	w.Step(DaemonSet{Object: ds})
	return ds
}

func (w *world) policy(t *testing.T, name, spec string) *v1alpha1.RolloutPolicy {
	t.Helper()
	p := &v1alpha1.RolloutPolicy{ObjectMeta: w.object(name, name)}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	w.Step(Policy{Object: p})
	return p
}

func (w *world) rollout(name, owner string, status v1alpha1.DaemonSetRolloutStatus, spec v1alpha1.DaemonSetRolloutSpec) *v1alpha1.DaemonSetRollout {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: w.object(name, "rollout-of-"+name), Status: status, Spec: spec}
	r.Labels = map[string]string{OwnerLabel: owner}
	w.Step(Rollout{Object: r})
	return r
}

// write takes the jobs, does them, and returns the policies' statuses by name.
func (w *world) write(t *testing.T) map[string]v1alpha1.RolloutPolicyStatus {
	t.Helper()
	out := map[string]v1alpha1.RolloutPolicyStatus{}
	for _, j := range w.Jobs() {
		r := Result{Job: j}
		if j.Policy != nil {
			out[j.Policy.Name] = j.Policy.Status
			r.Policy = j.Policy
		}
		w.Step(r)
	}
	if more := w.Jobs(); len(more) > 0 {
		t.Fatalf("what was written is written again: %+v", more[0])
	}
	return out
}

func says(s v1alpha1.RolloutPolicyStatus, kind string) string {
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

func TestTheOldestPolicyCountsAndTheOthersSaySo(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "selector: {matchLabels: {tier: logs}}")
	w.policy(t, "second", "")
	w.daemonSet("logs", "u1")
	w.daemonSet("net", "u2")
	w.daemonSet("manual", "u3", func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType })
	if a, b := w.rows.told["u1"].PolicyUID, w.rows.told["u2"].PolicyUID; a != "first" || b != "second" {
		t.Errorf("they follow %q and %q", a, b)
	}
	if _, told := w.rows.told["u3"]; told {
		t.Error("a DaemonSet with OnDelete follows a policy")
	}
	s := w.write(t)
	if got := s["first"]; got.MatchedCount != 1 || got.Matched[0] != "logs" || says(got, PassedOver) != "False None " || got.ObservedGeneration != 1 {
		t.Errorf("the first says %+v", got)
	}
	if got := says(s["second"], PassedOver); !strings.Contains(got, "DaemonSet logs follows policy first, which is older") || !strings.Contains(got, "DaemonSet manual has updateStrategy OnDelete") {
		t.Errorf("the second says %q", got)
	}
	w.policy(t, "third", "selector: {matchLabels: {tier: nothing}}")
	if got := says(w.write(t)["third"], Matched); !strings.HasPrefix(got, "False NoDaemonSet no DaemonSet of the namespace") {
		t.Errorf("one that chooses nothing says %q", got)
	}
}

func TestAPolicyThatCannotBeFollowedStopsWhatIsNew(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", `windows: [{from: "09:00", to: "16:00", timeZone: Nowhere/Atlantis}]`)
	w.policy(t, "second", "")
	w.daemonSet("logs", "u1")
	if got := w.rows.told["u1"]; got.Following != course.Lost || got.Policy != nil || !strings.Contains(got.Why, "no time zone that is known here") {
		t.Errorf("it is told %+v", got)
	}
	if got := says(w.write(t)["first"], Valid); !strings.HasPrefix(got, "False CannotBeFollowed nothing new begins: ") || !strings.Contains(got, "Nowhere/Atlantis") {
		t.Errorf("the policy says %q", got)
	}
}

func TestAPolicyThatGoesFreezesWhatIsUnderWay(t *testing.T) {
	w := newWorld()
	p := w.policy(t, "first", "")
	w.daemonSet("logs", "u1")
	w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b"}, v1alpha1.DaemonSetRolloutSpec{})
	w.write(t)
	w.Step(Policy{Object: p, Gone: true})
	if got := w.rows.told["u1"]; got.Following != course.Gone || !strings.HasPrefix(got.Why, "its policy was deleted; ") {
		t.Errorf("it is told %+v", got)
	}
	w.policy(t, "other", "selector: {matchLabels: {tier: another}}")
	if got := w.rows.told["u1"]; got.Following != course.Gone || !strings.HasPrefix(got.Why, "no policy selects it any more; ") {
		t.Errorf("it is told %+v", got)
	}
	w.write(t)
	approve := func(revision, step string) {
		w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b"},
			v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: revision, Step: step}})
	}
	for _, a := range [][2]string{{"a", v1alpha1.WithoutPolicy}, {"b", "canary"}, {"b", v1alpha1.AllSteps}} {
		approve(a[0], a[1])
		if _, told := w.rows.told["u1"]; !told {
			t.Errorf("approving %v lets it go on without a policy", a)
		}
	}
	approve("b", v1alpha1.WithoutPolicy)
	if _, told := w.rows.told["u1"]; told {
		t.Error("it does not go on though somebody said so")
	}
	jobs := w.Jobs()
	if len(jobs) != 1 || jobs[0].Delete == nil {
		t.Errorf("the rollout is not deleted: %+v", jobs)
	}
}

// A DaemonSet whose first revision has run nowhere is free when its policy goes. One that is changed while no node is
// selected is not: what nodes that come get was the policy's to say.
func TestAPolicyThatGoesWhileNoNodeIsSelected(t *testing.T) {
	for stable, held := range map[string]bool{"": false, "a": true, "b": false} {
		w := newWorld()
		p := w.policy(t, "first", "")
		w.daemonSet("logs", "u1")
		status := v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: stable, TargetRevision: "b"}
		w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
		w.Step(Policy{Object: p, Gone: true})
		if _, told := w.rows.told["u1"]; told != held {
			t.Errorf("stable %q: it is held %v", stable, told)
		}
	}
}

// A rollout says which policy is followed, or was last, and whether somebody has to approve there.
func TestTheStatusNamesThePolicy(t *testing.T) {
	w := newWorld()
	p := w.policy(t, "first", "waves: [{name: canary, count: 1, approval: Manual}]")
	w.daemonSet("logs", "u1")
	said := w.rows.told["u1"].Followed
	if said == nil || said.Name != "first" || said.UID != "first" || said.Approval != v1alpha1.ApprovalManual {
		t.Fatalf("it says %+v", said)
	}
	status := v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", Policy: said}
	r := w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
	if got := w.rows.told["u1"].Followed; got.SpecGeneration != r.Generation {
		t.Errorf("it says %+v of a spec of generation %d", got, r.Generation)
	}
	w.Step(Policy{Object: p, Gone: true})
	if got := w.rows.told["u1"]; got.Following != course.Gone || got.Followed != said {
		t.Errorf("when the policy is gone it says %+v", got.Followed)
	}
	w.policy(t, "other", "")
	if got := w.rows.told["u1"].Followed; got.Name != "other" || got.Approval != "" {
		t.Errorf("with another one it says %+v", got)
	}
}

// Who takes a DaemonSet out of its policy and changes it in the same write changes nothing
// by that, whether the controller sees it at once or when it starts. What was changed
// before it left, or is changed after, is its own.
func TestAWriteThatLeavesThePolicyIsHeld(t *testing.T) {
	const tier = "selector: {matchLabels: {tier: logs}}"
	out := func(generation int64) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Labels, ds.Generation = nil, generation }
	}
	in := func(ds *appsv1.DaemonSet) { ds.Generation = 5 }
	at := func(generation int64, target string) v1alpha1.DaemonSetRolloutStatus {
		return v1alpha1.DaemonSetRolloutStatus{DaemonSetGeneration: generation, StableRevision: "a", TargetRevision: target}
	}
	all := func(revision string) v1alpha1.DaemonSetRolloutSpec {
		return v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: revision, Step: v1alpha1.WithoutPolicy}}
	}
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.policy(t, "first", tier)
		if !restart {
			w.daemonSet("logs", "u1", in)
		}
		w.rollout("logs", "u1", at(5, "a"), all("a"))
		held := func(when string, want bool) {
			t.Helper()
			if got, told := w.rows.told["u1"]; told != want || want && (got.Following != course.Gone || !strings.HasPrefix(got.Why, "no policy selects it any more; ")) {
				t.Errorf("restart %t, %s: it is told %+v", restart, when, got)
			}
		}
		w.daemonSet("logs", "u1", out(6))
		held("with the write", true)
		w.rollout("logs", "u1", at(6, "b"), all("a"))
		held("when its revision is known", true)
		w.daemonSet("logs", "u1", out(7))
		held("with the next edit", true)
		w.rollout("logs", "u1", at(7, "c"), all("b"))
		held("with an approval of another revision", true)
		w.rollout("logs", "u1", at(7, "c"), all("c"))
		held("when somebody approved it", false)

		w.rollout("logs", "u1", at(7, "a"), v1alpha1.DaemonSetRolloutSpec{})
		w.daemonSet("logs", "u1", out(8))
		held("after it left", false)
		w.daemonSet("logs", "u1", func(ds *appsv1.DaemonSet) { ds.Generation = 8 })
		w.rollout("logs", "u1", at(8, "a"), v1alpha1.DaemonSetRolloutSpec{})
		w.daemonSet("logs", "u1", out(9))
		held("when it leaves once more", true)
	}
	w := newWorld()
	w.policy(t, "first", tier)
	w.daemonSet("logs", "u1", in)
	w.rollout("logs", "u1", at(5, "a"), v1alpha1.DaemonSetRolloutSpec{})
	w.daemonSet("logs", "u1", out(6))
	if _, told := w.rows.told["u1"]; !told {
		t.Error("a write that may change its template is not held")
	}
	w.rollout("logs", "u1", at(6, "a"), v1alpha1.DaemonSetRolloutSpec{})
	if _, told := w.rows.told["u1"]; told {
		t.Error("the write did not change its template, and it is held")
	}
	jobs := w.Jobs()
	if len(jobs) == 0 || jobs[len(jobs)-1].Delete == nil {
		t.Errorf("its rollout is not deleted: %+v", jobs)
	}
}

// A revision that failed stays where it is when its policy goes, whatever was approved before or is approved now. A new
// template goes on with consent.
func TestWhatFailedDoesNotGoOnWithoutAPolicy(t *testing.T) {
	for _, step := range []string{v1alpha1.AllSteps, v1alpha1.WithoutPolicy} {
		w := newWorld()
		p := w.policy(t, "first", "waves: [{name: canary, count: 1, approval: Manual}]")
		w.daemonSet("logs", "u1")
		status := v1alpha1.DaemonSetRolloutStatus{
			StableRevision: "a", TargetRevision: "b", Phase: v1alpha1.PhaseRolledBack, FailedRevisions: []v1alpha1.FailedRevision{{Revision: "b"}},
		}
		spec := v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "b", Step: step}}
		w.rollout("logs", "u1", status, spec)
		w.rows.statuses["u1"] = status
		w.write(t)
		w.Step(Policy{Object: p, Gone: true})
		got, told := w.rows.told["u1"]
		if !told || got.Following != course.Gone || !strings.Contains(got.Why, "revision b has failed") {
			t.Errorf("step %s approved: what failed is told %v, %+v", step, told, got)
		}
		if jobs := w.Jobs(); len(jobs) > 0 && jobs[0].Delete != nil {
			t.Error("what failed is forgotten")
		}
	}
}

// An approval names a digest beside the revision: that of another template is no consent.
func TestConsentIsForOneTemplate(t *testing.T) {
	w := newWorld()
	p := w.policy(t, "first", "")
	w.daemonSet("logs", "u1")
	status := v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", TargetDigest: "real"}
	for _, digest := range []string{"forged", "real"} {
		spec := v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "b", Digest: digest, Step: v1alpha1.WithoutPolicy}}
		w.rollout("logs", "u1", status, spec)
		w.Step(Policy{Object: p, Gone: true})
		if _, held := w.rows.told["u1"]; held != (digest == "forged") {
			t.Errorf("digest %s: held is %v", digest, held)
		}
	}
}

// Consent is for one change: that of one which was undone, or failed, lets no later one to the same revision go on. Where
// it names none, the rollout's own status knows of which it was.
func TestConsentIsForOneChange(t *testing.T) {
	consent := func(change int64) *v1alpha1.StepApproval {
		return &v1alpha1.StepApproval{Revision: "b", Step: v1alpha1.WithoutPolicy, Change: change}
	}
	for _, c := range []struct {
		given, heard *v1alpha1.StepApproval
		goes         bool
	}{
		{consent(4), nil, true}, {consent(3), nil, false}, {consent(0), nil, true},
		{consent(0), consent(3), false}, {consent(0), consent(4), true}, {consent(4), consent(3), true},
	} {
		for _, led := range []bool{false, true} {
			w := newWorld()
			p := w.policy(t, "first", "")
			w.daemonSet("logs", "u1")
			status := v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", Change: 4, Approved: c.heard}
			w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{Approved: c.given})
			if led {
				w.rows.statuses["u1"] = status
			}
			w.Step(Policy{Object: p, Gone: true})
			got, held := w.rows.told["u1"]
			if held == c.goes || held && !strings.HasSuffix(got.Why, "the approval of revision b was for an earlier change; approve again") {
				t.Errorf("consent %+v, which was heard as %+v, led %t: held is %t: %s", c.given, c.heard, led, held, got.Why)
			}
		}
	}
}

// What is numbered once is no number of another change, whether the policy or the DaemonSet went meanwhile.
func TestNumbersOfChangesDoNotComeAgain(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	heard := &v1alpha1.StepApproval{Revision: "b", Change: 6}
	r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{TargetRevision: "b", Change: 7, Approved: heard}}
	for _, owner := range []string{"u1", "u0"} {
		r.Labels = map[string]string{OwnerLabel: owner}
		r.Status.Conditions = []metav1.Condition{{Type: PolicyGone, Status: metav1.ConditionTrue}}
		if got := statusFor(ds, r); got.Change != 7 || got.Approved != heard || got.TargetRevision != "" {
			t.Errorf("of the rollout of %s is known %+v", owner, got)
		}
	}
}

// A DaemonSet that leaves its policy between changes, and comes back within a day, is still paused, and what failed is
// still known.
func TestAPauseAndFailuresOutliveTheirPolicyForADay(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "selector: {matchLabels: {tier: logs}}")
	ds := w.daemonSet("logs", "u1")
	status := v1alpha1.DaemonSetRolloutStatus{
		StableRevision: "a", TargetRevision: "a", Phase: v1alpha1.PhaseComplete, DaemonSetGeneration: ds.Generation,
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: "bad"}},
	}
	w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.rows.statuses["u1"] = status
	w.write(t)
	out := func(generation int64) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Labels, ds.Generation = nil, generation }
	}
	w.daemonSet("logs", "u1", out(ds.Generation))
	delete(w.rows.statuses, "u1")
	var left *v1alpha1.DaemonSetRollout
	for _, j := range w.Jobs() {
		if j.Delete != nil {
			t.Fatal("the rollout is deleted at once")
		}
		if j.Left == nil {
			continue
		}
		if j.Over() != j.Left {
			t.Error("it still counts in the metrics")
		}
		left = j.Left
		left.ResourceVersion = "900"
		w.Step(Result{Job: j, Rollout: left})
	}
	if left == nil || !meta.IsStatusConditionTrue(left.Status.Conditions, PolicyGone) {
		t.Fatalf("nobody says that it follows no policy: %+v", left)
	}
	// What people write into it meanwhile is seen, and gives it no more time.
	written := left.DeepCopy()
	written.Generation, written.ResourceVersion = left.Generation+1, "901"
	w.Step(Now{noon.Add(time.Hour)})
	w.Step(Rollout{Object: written})
	since := meta.FindStatusCondition(left.Status.Conditions, PolicyGone).LastTransitionTime
	for _, j := range w.Jobs() {
		if j.Left == nil {
			continue
		}
		left = j.Left
		left.ResourceVersion = "902"
		w.Step(Result{Job: j, Rollout: left})
	}
	c := meta.FindStatusCondition(left.Status.Conditions, PolicyGone)
	if left.Status.ObservedGeneration != written.Generation || !c.LastTransitionTime.Equal(&since) {
		t.Errorf("of generation %d is seen %d, since %s; want since %s", written.Generation,
			left.Status.ObservedGeneration, c.LastTransitionTime, since)
	}
	// What it changes meanwhile is its own, also for a controller that starts now, and when nothing can be read.
	w.daemonSet("logs", "u1", out(50))
	next := newWorld()
	next.Step(Rollout{Object: left})
	next.daemonSet("logs", "u1", out(50))
	for name, world := range map[string]*world{"this controller": w, "the next one": next} {
		world.Step(Sight{Policies: "no right"})
		if got, held := world.rows.told["u1"]; held {
			t.Errorf("%s holds it: %+v", name, got)
		}
		world.Step(Sight{})
	}
	w.daemonSet("logs", "u1", func(ds *appsv1.DaemonSet) { ds.Generation = 51 })
	got := w.rows.told["u1"]
	if !got.Spec.Paused || got.Status == nil || len(got.Status.FailedRevisions) != 1 || got.Status.StableRevision != "" {
		t.Errorf("when it comes back it is told %+v, %+v", got.Spec, got.Status)
	}
	w.daemonSet("logs", "u1", out(51))
	w.Step(Now{noon.Add(24 * time.Hour)})
	jobs := w.Jobs()
	if len(jobs) == 0 || jobs[len(jobs)-1].Delete == nil {
		t.Errorf("it is kept for more than a day: %+v", jobs)
	}
}

func TestWhatIsRememberedWithoutAPolicy(t *testing.T) {
	for name, r := range map[string]*v1alpha1.DaemonSetRollout{
		"a pause":             {Spec: v1alpha1.DaemonSetRolloutSpec{Paused: true}},
		"a failure":           {Status: v1alpha1.DaemonSetRolloutStatus{FailedRevisions: []v1alpha1.FailedRevision{{Revision: "b"}}}},
		"an earlier one":      {Status: v1alpha1.DaemonSetRolloutStatus{EarlierFailures: []string{"a"}}},
		"a forgotten one":     {Status: v1alpha1.DaemonSetRolloutStatus{ForgottenFailures: 1}},
		"nothing to speak of": {Spec: v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Step: v1alpha1.AllSteps}}},
	} {
		if got, want := remembers(r), name != "nothing to speak of"; got != want {
			t.Errorf("%s: remembered is %v", name, got)
		}
	}
}

func TestWhatFailedOutlivesItsDaemonSetForADay(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "")
	ds := w.daemonSet("logs", "u1")
	w.write(t)
	status := v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", FailedRevisions: []v1alpha1.FailedRevision{{Revision: "b"}}, EarlierFailures: []string{"z"}, ForgottenFailures: 3}
	w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
	w.Step(DaemonSet{Object: ds, Gone: true})
	var left *v1alpha1.DaemonSetRollout
	for _, j := range w.Jobs() {
		if j.Left != nil {
			left = j.Left
			left.ResourceVersion = "100"
			w.Step(Result{Job: j, Rollout: left})
		}
	}
	if left == nil || !meta.IsStatusConditionTrue(left.Status.Conditions, DaemonSetGone) {
		t.Fatalf("nobody says that the DaemonSet is gone: %+v", left)
	}
	if at, ok := w.NextTick(); !ok || !at.Equal(noon.Add(24*time.Hour)) {
		t.Errorf("it is looked at again at %s, %v", at, ok)
	}
	w.daemonSet("logs", "u2")
	if got := w.rows.told["u2"].Status; got == nil || len(got.FailedRevisions) != 1 || len(got.EarlierFailures) != 1 || got.ForgottenFailures != 3 || got.StableRevision != "" || got.TargetRevision != "" {
		t.Errorf("the next DaemonSet of the name is told %+v", got)
	}
	w.Step(DaemonSet{Object: &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", UID: "u2"}}, Gone: true})
	w.Step(Now{noon.Add(24*time.Hour - time.Second)})
	for _, j := range w.Jobs() {
		if j.Delete != nil {
			t.Error("it is deleted before the day is over")
		}
	}
	w.Step(Now{noon.Add(24 * time.Hour)})
	deleted := false
	for _, j := range w.Jobs() {
		deleted = deleted || j.Delete != nil
	}
	if !deleted {
		t.Error("it is kept for more than a day")
	}
}

// The rollout of a DaemonSet that is gone says so, also when the next one of the name
// follows no rollout at all.
func TestARolloutIsLeftBehindByADaemonSetThatIsReplaced(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "")
	w.daemonSet("logs", "u1")
	w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a"}, v1alpha1.DaemonSetRolloutSpec{})
	w.write(t)
	w.daemonSet("logs", "u2", func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType })
	left := 0
	for _, j := range w.Jobs() {
		if j.Left != nil {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d rollouts say that their DaemonSet is gone", left)
	}
}

// What could not be deleted is deleted later, whatever happens to the DaemonSet meanwhile.
func TestALeftoverIsNotForgotten(t *testing.T) {
	w := newWorld()
	ds := w.daemonSet("logs", "u1")
	w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a"}, v1alpha1.DaemonSetRolloutSpec{})
	jobs := w.Jobs()
	if len(jobs) != 1 || jobs[0].Delete == nil {
		t.Fatalf("it is not deleted: %+v", jobs)
	}
	w.Step(Result{Job: jobs[0], Failed: true})
	counted := ds.DeepCopy()
	counted.ResourceVersion, counted.Status.NumberReady = "1000", 3
	w.Step(DaemonSet{Object: counted})
	w.Step(Now{noon.Add(time.Minute)})
	if jobs := w.Jobs(); len(jobs) != 1 || jobs[0].Delete == nil {
		t.Errorf("it is not tried again: %+v", jobs)
	}
}

// A status that cannot be written is written again later, and others do not wait.
func TestAStatusThatIsRefusedIsTriedAgain(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "")
	jobs := w.Jobs()
	if len(jobs) != 1 {
		t.Fatalf("jobs are %+v", jobs)
	}
	if again := w.Jobs(); len(again) > 0 {
		t.Errorf("it is under way and begins again: %+v", again)
	}
	w.Step(Result{Job: jobs[0], Failed: true})
	if again := w.Jobs(); len(again) > 0 {
		t.Errorf("it is tried again at once: %+v", again)
	}
	at, ok := w.NextTick()
	if !ok {
		t.Fatal("nobody tries it again")
	}
	w.Step(Now{at})
	if again := w.Jobs(); len(again) != 1 {
		t.Errorf("jobs are %+v", again)
	}
}

// A rollout that is kept for what failed goes after its day also when the DaemonSet that
// has the name now follows no policy.
func TestWhatIsRememberedGoesAlsoWithoutAPolicy(t *testing.T) {
	w := newWorld()
	p := w.policy(t, "first", "")
	ds := w.daemonSet("logs", "u1")
	w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b"}, v1alpha1.DaemonSetRolloutSpec{})
	w.Step(DaemonSet{Object: ds, Gone: true})
	w.Step(Policy{Object: p, Gone: true})
	w.daemonSet("logs", "u2")
	for _, j := range w.Jobs() {
		if j.Delete != nil {
			t.Error("it is deleted at once")
		}
		if j.Left != nil {
			j.Left.ResourceVersion = "100"
			w.Step(Result{Job: j, Rollout: j.Left})
		}
	}
	w.Step(Now{noon.Add(24 * time.Hour)})
	deleted := false
	for _, j := range w.Jobs() {
		deleted = deleted || j.Delete != nil
	}
	if !deleted {
		t.Error("it is kept for more than a day")
	}
}

// Who deletes a rollout in the middle of a change, or a paused one, lets nothing begin by
// that: the next one is paused, and says why. What has failed is remembered, and needs no
// pause; when nothing is under way there is nothing to hold up.
func TestARolloutThatIsDeletedInTheMiddleIsPaused(t *testing.T) {
	failed := []v1alpha1.FailedRevision{{Revision: "b"}}
	for name, c := range map[string]struct {
		status v1alpha1.DaemonSetRolloutStatus
		paused bool
		want   string
	}{
		"under way":   {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: "a", TargetRevision: "b"}, false, "its DaemonSetRollout was deleted while it was Progressing; look"},
		"new":         {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, TargetRevision: "b"}, false, "its DaemonSetRollout was deleted while it was Progressing; look"},
		"paused":      {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: "b", TargetRevision: "b"}, true, "its DaemonSetRollout was deleted while it was Complete; look"},
		"complete":    {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: "b", TargetRevision: "b"}, false, ""},
		"on no node":  {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: "a", TargetRevision: "b"}, false, "its DaemonSetRollout was deleted while it was Complete; look"},
		"ran nowhere": {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, TargetRevision: "b"}, false, ""},
		"rolled back": {v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseRolledBack, StableRevision: "a", TargetRevision: "b", FailedRevisions: failed}, false, ""},
	} {
		w := newWorld()
		w.policy(t, "first", "")
		w.daemonSet("logs", "u1")
		r := w.rollout("logs", "u1", c.status, v1alpha1.DaemonSetRolloutSpec{Paused: c.paused})
		w.rows.statuses["u1"] = c.status
		w.Step(Rollout{Object: r, Gone: true})
		told := w.rows.told["u1"]
		if told.Spec.Paused != (c.want != "") || !strings.HasPrefix(told.PausedWhy, c.want) || c.want == "" && told.PausedWhy != "" {
			t.Errorf("%s: it is told paused %v because %q", name, told.Spec.Paused, told.PausedWhy)
		}
		if c.want == "" {
			continue
		}
		made := r.DeepCopy()
		made.UID, made.ResourceVersion, made.Generation, made.Spec.Paused = "made", "100", 1, true
		made.Annotations = map[string]string{PausedBecause: told.PausedWhy}
		w.Step(Rollout{Object: made})
		if got := w.rows.told["u1"]; got.PausedWhy != told.PausedWhy || !got.Spec.Paused {
			t.Errorf("%s: with the next rollout it is told %+v", name, got)
		}
		resumed := made.DeepCopy()
		resumed.ResourceVersion, resumed.Generation, resumed.Spec.Paused = "101", 2, false
		w.Step(Rollout{Object: resumed})
		again := resumed.DeepCopy()
		if got := w.rows.told["u1"]; got.Spec.Paused || got.PausedWhy != "" {
			t.Errorf("%s: when somebody lets it go on it is told %+v", name, got)
		}
		again.ResourceVersion, again.Generation, again.Spec.Paused = "102", 3, true
		w.Step(Rollout{Object: again})
		if got := w.rows.told["u1"]; !got.Spec.Paused || got.PausedWhy != "" {
			t.Errorf("%s: when somebody pauses it it is told %+v", name, got)
		}
	}
}

// A controller that starts finds in the DaemonSet's own condition that there was a rollout
// in the middle of a change.
func TestARolloutThatIsDeletedWhileNobodyLooks(t *testing.T) {
	for reason, want := range map[string]bool{
		"RolloutPolicyHalted": true, "RolloutPolicyProgressing": true, "RolloutPolicyWaitingForApproval": true,
		"RolloutPolicyComplete": false, fact.NotStored: false, "RolloutComplete": false,
	} {
		w := newWorld()
		w.policy(t, "first", "")
		w.daemonSet("logs", "u1", func(ds *appsv1.DaemonSet) {
			ds.Status.Conditions = []appsv1.DaemonSetCondition{{Type: fact.ConditionProgressing, Reason: reason}}
		})
		for range 2 { // what is told once more, before the next rollout is there, changes nothing
			if told := w.rows.told["u1"]; told.Spec.Paused != want || strings.HasPrefix(told.PausedWhy, "its DaemonSetRollout was deleted while it was ") != want {
				t.Errorf("%s: it is told paused %v because %q", reason, told.Spec.Paused, told.PausedWhy)
			}
			w.rows.statuses["u1"] = v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhasePaused}
			w.policy(t, "first", "pace: {nodesPerMinute: 5}")
		}
		w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: "a", TargetRevision: "b"}, v1alpha1.DaemonSetRolloutSpec{})
		if told := w.rows.told["u1"]; told.Spec.Paused || told.PausedWhy != "" {
			t.Errorf("%s: with a rollout it is told %+v", reason, told)
		}
	}
}

// The end of a rollout may be the first that is heard of its last status.
func TestWhatARolloutSaidLastIsHeardWithItsEnd(t *testing.T) {
	const progressing, waiting = v1alpha1.PhaseProgressing, v1alpha1.PhaseWaitingForApproval
	for name, last := range map[string]struct {
		version string
		want    v1alpha1.Phase
	}{"newer": {"9", waiting}, "of no known version": {"", progressing}, "older": {"1", progressing}} {
		w := newWorld()
		w.policy(t, "first", "")
		ds := w.daemonSet("logs", "u1")
		status := v1alpha1.DaemonSetRolloutStatus{Phase: progressing, StableRevision: "a", TargetRevision: "b"}
		w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
		seen := w.RolloutOf(ds).DeepCopy()
		seen.ResourceVersion = "5"
		w.Step(Rollout{Object: seen})
		gone := seen.DeepCopy()
		gone.ResourceVersion, gone.Status.Phase = last.version, waiting
		w.Step(Rollout{Object: gone, Gone: true})
		told, why := w.rows.told["u1"], "its DaemonSetRollout was deleted while it was "+string(last.want)+";"
		if !told.Spec.Paused || !strings.HasPrefix(told.PausedWhy, why) {
			t.Errorf("%s: the next one is told paused %v because %q", name, told.Spec.Paused, told.PausedWhy)
		}
	}
}

// The answer to a write may be taken in after the end of what was written: a rollout that is gone does not come back.
// Its name is forgotten with its DaemonSet.
func TestAnAnswerAfterItsRolloutHasGone(t *testing.T) {
	b := New(&rows{}, time.LoadLocation)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "logs", UID: "ds"}}
	b.Step(DaemonSet{Object: ds})
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "logs", UID: "r1", ResourceVersion: "5"}
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: meta}
	b.Step(Rollout{Object: r})
	b.Step(Rollout{Object: r, Gone: true})
	late := r.DeepCopy()
	late.ResourceVersion = "6"
	b.Step(Rollout{Object: late})
	if b.RolloutOf(ds) != nil {
		t.Error("a rollout that is gone is taken for one that is there")
	}
	next := r.DeepCopy()
	next.UID, next.ResourceVersion = "r2", "7"
	b.Step(Rollout{Object: next})
	if b.RolloutOf(ds) != next {
		t.Error("the next rollout of the name is not taken in")
	}
	b.Step(Rollout{Object: next, Gone: true})
	b.Step(DaemonSet{Object: ds, Gone: true})
	if len(b.ended) > 0 {
		t.Errorf("with the DaemonSet gone it still knows %v", b.ended)
	}
}

// TestARolloutStaysForCopies: a rollout without a policy goes when no copy of content is left, and not before: a
// controller that starts finds them by it. Where it remembers what failed as well, it only speaks of content no more.
func TestARolloutStaysForCopies(t *testing.T) {
	for _, failed := range []bool{false, true} {
		w := newWorld()
		r := &v1alpha1.DaemonSetRollout{ObjectMeta: w.object("logs", "r1")}
		r.Labels = map[string]string{OwnerLabel: "u1"}
		r.Status.Content = &v1alpha1.ContentStatus{Kept: true}
		if failed {
			r.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "logs-1"}}
		}
		w.rows.keeps = map[types.UID]bool{"u1": true}
		w.Step(Rollout{Object: r})
		w.daemonSet("logs", "u1")
		jobs := w.Jobs()
		if len(jobs) != 1 || jobs[0].Left == nil || jobs[0].Left.Status.Content == nil || jobs[0].Over() == nil ||
			!strings.HasPrefix(jobs[0].Left.Status.Message, "no policy selects the DaemonSet; ") {
			t.Fatalf("failed %t: with copies: %+v", failed, jobs)
		}
		left := jobs[0].Left
		left.ResourceVersion = "900"
		w.Step(Result{Job: jobs[0], Rollout: left})
		if jobs = w.Jobs(); len(jobs) != 0 {
			t.Fatalf("failed %t: it is written again: %+v", failed, jobs[0])
		}
		w.rows.left = "they cannot be deleted"
		jobs = w.Jobs()
		if len(jobs) != 1 || jobs[0].Left == nil || jobs[0].Left.Status.Content.Leftover != w.rows.left {
			t.Fatalf("failed %t: copies stay: %+v", failed, jobs)
		}
		left = jobs[0].Left
		left.ResourceVersion = "901"
		w.Step(Result{Job: jobs[0], Rollout: left})
		w.Step(Now{noon.Add(25 * time.Hour)})
		if jobs = w.Jobs(); len(jobs) != 0 {
			t.Fatalf("failed %t: with copies it goes after a day: %+v", failed, jobs[0])
		}
		if at, is := w.NextTick(); is {
			t.Errorf("failed %t: there is something to do at %s", failed, at)
		}
		w.Step(Now{noon.Add(time.Hour)})
		w.rows.keeps = nil
		jobs = w.Jobs()
		switch {
		case len(jobs) != 1, !failed && jobs[0].Delete == nil, failed && jobs[0].Left == nil:
			t.Fatalf("failed %t: without copies: %+v", failed, jobs)
		case failed && jobs[0].Left.Status.Content != nil:
			t.Errorf("without copies it speaks of %+v", jobs[0].Left.Status.Content)
		}
	}
}
