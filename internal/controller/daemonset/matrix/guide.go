package matrix

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// RolloutInfo is the policy that a DaemonSet's changes follow, and its rollout.
// While a matrix knows one, the rollout's course says which revision each node is to
// have and which may be changed; the DaemonSet's own budget is not asked.
type RolloutInfo struct {
	UID types.UID // of the DaemonSet
	// PolicyUID is the policy's: rows of the same one share its pace.
	PolicyUID types.UID
	// Policy is nil when there is none to follow; Following and Why then say more.
	Policy    *rolloutpolicy.Policy
	Following course.Following
	Why       string
	// Generation is that of Spec, which people wrote.
	Generation int64
	Spec       v1alpha1.DaemonSetRolloutSpec
	// Status is what the API holds, nil if the rollout is not stored. It matters when
	// the rollout is new to the matrix: after that the matrix knows what it wrote.
	Status *v1alpha1.DaemonSetRolloutStatus
	// Followed is the policy that is followed, or was last, for the rollout's status.
	Followed *v1alpha1.FollowedPolicy `json:",omitempty"`
	// PausedWhy says why Spec is paused if nobody asked for it, "" if somebody did. A
	// rollout that is to be made is made paused then.
	PausedWhy string `json:",omitempty"`
	// Unread tells that there may be a rollout that cannot be read: it is not written.
	Unread bool `json:",omitempty"`
}

// RolloutGone says that the changes of a DaemonSet follow no policy any more.
type RolloutGone types.UID

// NodeHealth is what a rollout must know of a node beside what placement reads.
type NodeHealth struct {
	Name string
	// Fault says why the node is out of order by itself; "" if it is not.
	Fault string
	// Silent tells that nobody hears of the node, Since when the fault began.
	Silent bool
	Since  time.Time
}

// Verb is the event's word in scripts.
func (RolloutInfo) Verb() string { return "rollout" }

// Verb is the event's word in scripts.
func (RolloutGone) Verb() string { return "delete-rollout" }

// Verb is the event's word in scripts.
func (NodeHealth) Verb() string { return "health" }

// guide is a row's course and what the API knows of it.
type guide struct {
	info   RolloutInfo
	course *course.Course
	guest  bool // Config.Guest
	// stored tells that the API holds where the rollout stands: nothing new begins
	// before. written is what it holds, told what people were told of it.
	stored   bool
	written  v1alpha1.DaemonSetRolloutStatus
	told     v1alpha1.DaemonSetRolloutStatus
	inFlight bool
	// looked is when the status was last compared with what the API holds; stale tells
	// that something happened since.
	looked  time.Time
	stale   bool
	setback setback // of writing it
	// turn is how much of the policy's pace had been spent when the row took from it last: who shares it takes
	// in turn.
	turn int
}

// updateRollout takes a policy or what people wrote into a rollout in.
func (m *Matrix) updateRollout(info RolloutInfo) {
	if was, known := m.rollouts[info.UID]; known && was.PolicyUID != info.PolicyUID {
		m.forgetRollout(info.UID)
	}
	m.rollouts[info.UID] = info
	if r := m.rows[info.UID]; r != nil {
		m.guide(r, info)
	}
}

// guide has the row follow the rollout, at its policy's pace.
func (m *Matrix) guide(r *row, info RolloutInfo) {
	if info.Policy != nil {
		m.paceOf(info.PolicyUID).Set(info.Policy.NodesPerMinute, m.now)
	}
	m.tell(r, info)
}

func (m *Matrix) deleteRollout(uid types.UID) {
	m.forgetRollout(uid)
	if r := m.rows[uid]; r != nil && r.guide != nil {
		m.tell(r, RolloutGone(uid))
	}
}

// forgetRollout forgets the rollout of a DaemonSet, and its policy's pace if nobody else goes by that.
func (m *Matrix) forgetRollout(uid types.UID) {
	policy := m.rollouts[uid].PolicyUID
	delete(m.rollouts, uid)
	for _, o := range m.rollouts {
		if o.PolicyUID == policy {
			return
		}
	}
	delete(m.paces, policy)
}

// obey has the row follow the rollout.
func (r *row) obey(info RolloutInfo) {
	g := r.guide
	if g == nil {
		g = &guide{course: course.New(), guest: r.cfg.Guest}
		g.course.Tick(r.now)
		if info.Status != nil {
			g.stored, g.written, g.told = info.Status.TargetRevision != "", *info.Status, *info.Status
		}
	} else if g.info.Status != nil && info.Status == nil {
		g.written = v1alpha1.DaemonSetRolloutStatus{} // somebody deleted it
	}
	if was := g.info.Spec.Retry; r.guide != nil && info.Spec.Retry != nil && (was == nil || *was != *info.Spec.Retry) {
		r.tryAnew()
	}
	g.info = info
	g.course.SetPolicy(info.Policy, info.Following, info.Why)
	g.course.SetSpec(named(info.Spec, r.info.Digest))
	g.course.PausedBecause(info.PausedWhy)
	if r.guide != nil {
		r.follow(nil)
		return
	}
	r.guide = g
	g.course.SetDaemonSet(r.forCourse())
	for name, col := range r.columns {
		r.sawNode(name, col)
	}
	r.refreshAll()
	r.follow(nil)
}

// named leaves out what people wrote about another template than the one with the digest: a revision's
// name has 32 bits, and a template can be made to have that of an approved one.
func named(spec v1alpha1.DaemonSetRolloutSpec, digest string) v1alpha1.DaemonSetRolloutSpec {
	if a := spec.Approved; a != nil && a.Digest != digest {
		spec.Approved = nil
	}
	if r := spec.Retry; r != nil && r.Digest != digest {
		spec.Retry = nil
	}
	if a := spec.Abort; a != nil && a.Digest != digest {
		spec.Abort = nil
	}
	return spec
}

// sawNode tells the row's course of a node; one without a column is gone.
func (r *row) sawNode(name string, col *column) {
	if col == nil {
		r.guide.course.DeleteNode(name)
		return
	}
	h := &col.health
	r.guide.course.SetNode(name, course.Node{Object: col.node, Fault: h.Fault, Silent: h.Silent, Since: h.Since})
}

func (m *Matrix) updateHealth(h NodeHealth) {
	if m.health[h.Name] == h {
		return
	}
	m.health[h.Name] = h
	if h.Fault == "" {
		delete(m.health, h.Name)
	}
	if col := m.columns[h.Name]; col != nil {
		m.setColumn(h.Name, &column{info: col.info, node: col.node, health: h})
	}
}

// forCourse is what the row's course reads of the DaemonSet.
func (r *row) forCourse() course.DaemonSet {
	limit := r.info.Strategy.MaxUnavailable
	if r.surge {
		limit = r.info.Strategy.MaxSurge
	}
	return course.DaemonSet{
		Set: r.rules, MaxUnavailable: rolloutpolicy.LimitOf(limit), Surge: r.surge, MinReadySeconds: r.info.MinReadySeconds,
		Beside: r.cfg.Guest,
	}
}

// takeTurns has the course say which cells may be changed now. It returns how many of so many as may begin at the
// policy's pace have.
func (r *row) takeTurns(allowed int) (begun int) {
	g := r.guide
	if !g.course.Started() {
		g.start(r)
	}
	if g.holdsStage() {
		room := min(r.cfg.BurstReplicas-r.deletes, r.cfg.BurstReplicas-r.fresh.inFlight-r.again.inFlight)
		if g.course.Returns() {
			g.course.Take(room)
		} else {
			begun = len(g.course.Take(r.besideFirst(min(room, allowed))))
		}
	}
	r.follow(nil)
	return begun
}

// besideFirst is how many of so many nodes may begin while the first one of a template finds something out.
func (r *row) besideFirst(most int) int {
	switch {
	case r.info.First == NoFirst:
		return most
	case r.info.First == FirstPulls, r.guide.course.UnderWay() > 0:
		return 0
	}
	return min(most, 1)
}

// holdsStage reports whether the API holds the target and the step that the course is at: nothing
// is changed for a step that nobody else could know of.
func (g *guide) holdsStage() bool {
	target, step := g.course.Stage()
	// Who answers for a pod that another controller makes reads the status: it must say that nodes go back.
	told := !g.guest || g.course.Fails() == rolloutpolicy.HasFailed(&g.written, target)
	return g.stored && g.written.TargetRevision == target && g.written.Step == step && told
}

// start has the course decide from now on: all that is known has been told to it.
func (g *guide) start(r *row) {
	if !r.cfg.Foretells {
		g.course.ExpectRecovery()
	}
	switch s := g.info.Status; {
	case g.info.Unread, s == nil && g.info.PausedWhy != "":
		// There is one, or was, and nobody knows what it says.
		g.course.Start(&v1alpha1.DaemonSetRolloutStatus{StableRevision: r.likelyStable(), TargetRevision: r.info.Revision})
	case s == nil:
		g.course.Start(&v1alpha1.DaemonSetRolloutStatus{})
	default:
		g.course.Start(s)
	}
}

// likelyStable is the revision for nodes without a pod while nobody can read which one
// is stable: of the older ones that which most pods have. Without those the newest,
// which then is everywhere.
func (r *row) likelyStable() string {
	best, most := "", 0
	for revision, n := range r.revisions {
		if revision == "" || revision == r.info.Revision {
			continue
		}
		if n > most || n == most && revision < best {
			best, most = revision, n
		}
	}
	if best == "" && r.revisions[r.info.Revision] > 0 {
		return r.info.Revision
	}
	return best
}

// UpdateRollout asks for a rollout's status to be written, and for the rollout to be
// made if there is none.
type UpdateRollout struct {
	Target
	// Status is without conditions.
	Status v1alpha1.DaemonSetRolloutStatus
	// PausedWhy is the info's, for a rollout that is to be made.
	PausedWhy string `json:",omitempty"`
	// Failing counts the failures of the target by their reason.
	Failing map[course.Reason]int `json:",omitempty"`
}

// Why is the reason for the action.
func (a *UpdateRollout) Why() Reason { return ReasonStatus }

func (a *UpdateRollout) String() string {
	s := &a.Status
	text := "rollout " + a.Name + " " + string(s.Phase) + " stable=" + s.StableRevision + " target=" + s.TargetRevision
	if s.Step != "" {
		text += " step=" + s.Step
	}
	return text + " (" + s.Message + ")"
}

// readyRollout asks for the rollout's status to be written when it differs from what
// the API holds, paced as the DaemonSet's own is, and faster while nodes wait for it.
func (r *row) readyRollout(out []Action) []Action {
	g := r.guide
	if g == nil || !g.course.Started() || g.inFlight || g.info.Unread {
		return out
	}
	if g.stale = g.due(r.cfg).After(r.now); g.stale {
		return out
	}
	g.looked = r.now
	want := g.course.Status()
	want.ObservedGeneration, want.DaemonSetGeneration = g.info.Generation, r.info.Generation
	want.TargetDigest, want.Policy = r.info.Digest, g.info.Followed
	want.Content, want.Images = contentOf(&want, r.info.Content), r.info.Images
	if g.stored && apiequality.Semantic.DeepEqual(&want, &g.written) {
		return out
	}
	g.inFlight = true
	return append(r.news(out, &want), &UpdateRollout{Target: r.target(), Status: want, Failing: g.course.Failing(),
		PausedWhy: g.info.PausedWhy})
}

// contentOf is what a status says of content; what differs from the stable one's is news until it is that.
func contentOf(s *v1alpha1.DaemonSetRolloutStatus, said *v1alpha1.ContentStatus) *v1alpha1.ContentStatus {
	out := v1alpha1.ContentStatus{Stable: content.IDOf(s.StableRevision), Target: content.IDOf(s.TargetRevision)}
	if said != nil && s.StableRevision != s.TargetRevision {
		out.Changes = said.Changes
	}
	if said != nil {
		out.Message, out.Overtaken, out.OvertakenSince = said.Message, said.Overtaken, said.OvertakenSince
	}
	if out.Stable == "" && out.Target == "" && out.Message == "" {
		return nil
	}
	return &out
}

// progressing is the condition of a row that follows a policy.
func (g *guide) progressing(counts string) Condition {
	phase, why := g.course.Phase()
	status := corev1.ConditionFalse
	switch phase {
	case v1alpha1.PhaseComplete, v1alpha1.PhaseProgressing, v1alpha1.PhaseSoaking:
		status = corev1.ConditionTrue
	}
	const refused = "the API takes the status of its DaemonSetRollout; the controller's log says why it does not"
	switch {
	case g.info.Unread: // what follows must be seen to have been in the middle of something
	case !g.stored && g.setback.failures == 0:
		return Condition{status, NotStored, counts + "; " + why}
	case !g.stored:
		return Condition{corev1.ConditionFalse, NotStored, counts + "; nothing begins before " + refused}
	}
	return Condition{status, FollowsPolicy + string(phase), counts + "; " + why}
}

// due is the earliest moment to look whether the status is to be written.
func (g *guide) due(cfg *Config) time.Time {
	target, step := g.course.Stage()
	asked := g.told.TargetRevision == target && g.told.Step == step // changes wait for a stage that was not
	if paced := g.looked.Add(cfg.StatusInterval); !g.looked.IsZero() && paced.After(g.setback.until) && asked {
		return paced
	}
	return g.setback.until
}

func (r *row) rolloutWritten(a *UpdateRollout, o Outcome) {
	g := r.guide
	if g == nil {
		return
	}
	g.inFlight, g.stale = false, true
	if o == OK {
		g.stored, g.written, g.setback = true, a.Status, setback{}
		return
	}
	g.written = v1alpha1.DaemonSetRolloutStatus{} // it may be this one, or that of before
	g.setback.failed(r.now, r.cfg)
}

// KeepsRevision reports whether pods of the revision may still have to be made for the
// DaemonSet, though none has it.
func (m *Matrix) KeepsRevision(uid types.UID, revision string) bool {
	if r := m.rows[uid]; r != nil && r.guide != nil && r.guide.course.Started() {
		return r.guide.course.Keeps(revision)
	}
	info, known := m.rollouts[uid]
	return known && info.Status != nil && (info.Status.StableRevision == revision ||
		info.Status.TargetRevision == revision)
}

// Verdict is where a node stands in the rollout of a DaemonSet, and why; false if
// its changes follow no policy.
func (m *Matrix) Verdict(uid types.UID, node string) (course.Verdict, string, bool) {
	r := m.rows[uid]
	if r == nil || r.guide == nil {
		return "", "", false
	}
	v, why := r.guide.course.Verdict(node)
	if m.columns[node] != nil && v == course.NotSelected {
		why = r.leftOut(node)
	}
	return v, why, true
}

// Rollout is where the rollout of a DaemonSet stands; false if its changes follow no
// policy, or nothing has been decided yet.
func (m *Matrix) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	r := m.rows[uid]
	if r == nil || r.guide == nil || !r.guide.course.Started() {
		return v1alpha1.DaemonSetRolloutStatus{}, false
	}
	return r.guide.course.Status(), true
}
