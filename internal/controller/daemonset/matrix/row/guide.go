package row

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/news"
)

// guide is a row's course and what the API knows of it.
type guide struct {
	info   fact.Rollout
	course *course.Course
	// stored tells that the API holds where the rollout stands: nothing new begins
	// before. written is what it holds, told what people were told of it.
	stored   bool
	written  v1alpha1.DaemonSetRolloutStatus
	told     v1alpha1.DaemonSetRolloutStatus
	inFlight bool
	// looked is when the status was last compared with what the API holds; stale tells that something happened since.
	looked  time.Time
	stale   bool
	setback setback // of writing it
}

// obey has the row follow the rollout.
func (r *Row) obey(info fact.Rollout) {
	g := r.guide
	if g == nil {
		g = &guide{course: course.New()}
		g.course.Reach(r.now)
		if info.Status != nil {
			g.stored, g.written, g.told = info.Status.TargetRevision != "", *info.Status, *info.Status
		}
	} else if g.isOverwritten(info.Status) {
		g.written, g.stale = v1alpha1.DaemonSetRolloutStatus{}, true
	}
	if was := g.info.Spec.Retry; r.guide != nil && info.Spec.Retry != nil && (was == nil || *was != *info.Spec.Retry) {
		r.tryAnew()
	}
	g.info = info
	g.course.SetPolicy(info.Policy, info.Following, info.Why)
	g.course.SetSpec(info.Spec)
	g.course.PausedBecause(info.PausedWhy)
	if r.guide == nil {
		r.guide = g
		r.tellCourse()
		r.refreshAll()
	}
	r.follow(nil)
}

// tellCourse tells the row's course of the DaemonSet, and of all nodes by its rules.
func (r *Row) tellCourse() {
	r.guide.course.SetDaemonSet(r.forCourse())
	for name, col := range r.columns {
		r.sawNode(name, col)
	}
}

// isOverwritten reports whether somebody else deleted the status, or wrote another one, such as a leader that does not
// know yet that it is none.
func (g *guide) isOverwritten(by *v1alpha1.DaemonSetRolloutStatus) bool {
	switch was := g.info.Status; {
	case was == nil || was == by:
		return false
	case by == nil:
		return true
	default:
		return !g.inFlight && !apiequality.Semantic.DeepEqual(was, by)
	}
}

// sawNode tells the row's course of a node; one without a column is gone. One of the fleet on which nothing starts for
// now is out of order: a daemon that is taken there would come again only after that.
func (r *Row) sawNode(name string, col *Column) {
	if col == nil {
		r.guide.course.DeleteNode(name)
		return
	}
	fault := cmp.Or(col.Health.Fault, r.info.Placement.Waits(col.Node))
	r.guide.course.SetNode(name, col.Health.Told(col.Node, fault))
}

// forCourse is what the row's course reads of the DaemonSet.
func (r *Row) forCourse() course.DaemonSet {
	limit := r.info.Strategy.MaxUnavailable
	if r.surge {
		limit = r.info.Strategy.MaxSurge
	}
	return course.DaemonSet{
		Set: r.rules, Digest: r.info.Digest, Renamed: r.info.Renamed, MoreImages: r.info.MoreImages,
		MaxUnavailable: rolloutpolicy.LimitOf(limit), Surge: r.surge, MinReadySeconds: r.info.MinReadySeconds,
		Beside: r.cfg.Guest, Fetches: r.cfg.Fetches, Foretells: r.cfg.Foretells,
		FetchPods: fetching.Pods{Ask: r.cfg.FetchPods, Hindered: r.info.FetchHindered},
	}
}

// takeTurns has the course say which cells may be changed now. It returns how many of so many as may begin at the
// policy's pace have.
func (r *Row) takeTurns(allowed int) (begun int) {
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
func (r *Row) besideFirst(most int) int {
	switch {
	case r.firstOfNewest() == fact.NoFirst:
		return most
	case r.firstOfNewest() == fact.FirstPulls, r.guide.course.UnderWay() > 0:
		return 0
	}
	return min(most, 1)
}

func (r *Row) firstOfNewest() fact.First { return r.info.First.Of(content.TemplateOf(r.info.Revision)) }

// awaitsFirst says in the phase what others wait for while the first node of a template finds something out.
func (r *Row) awaitsFirst(phase v1alpha1.Phase) string {
	waits := r.firstOfNewest() != fact.NoFirst && r.info.Images != nil && !r.guide.course.Returns()
	if phase != v1alpha1.PhaseProgressing || !waits {
		return ""
	}
	return "; images: " + r.info.Images.Message
}

// holdsStage reports whether the API holds the change and the step that the course is at, and whether the target has
// failed: nothing is changed for a step that nobody else could know of, and what has gone back is no evidence for the
// next controller. Beside another controller, who answers for a pod reads it too, and which nodes are in the step, by
// which policy.
func (g *guide) holdsStage() bool { return g.stored && g.says(&g.written) }

// says reports whether a status is of the stage that the course is at.
func (g *guide) says(s *v1alpha1.DaemonSetRolloutStatus) bool {
	target, step, change := g.course.Stage()
	cutoffs := g.course.Cutoffs(g.info.PolicyGeneration)
	return s.TargetRevision == target && s.Step == step && s.Change == change &&
		g.course.Fails() == rolloutpolicy.HasFailed(s, target) && rolloutpolicy.Covers(s.Cutoffs, cutoffs) &&
		(cutoffs == nil || uidOf(s.Policy) == uidOf(g.info.Followed))
}

// uidOf is the UID of a policy that is followed; "" for none.
func uidOf(p *v1alpha1.FollowedPolicy) types.UID { return ptr.Deref(p, v1alpha1.FollowedPolicy{}).UID }

// start has the course decide from now on: all that is known has been told to it.
func (g *guide) start(r *Row) {
	if !r.cfg.Foretells {
		g.course.ExpectRecovery()
	}
	switch s := g.info.Status; {
	case g.info.Unread, s == nil && g.info.PausedWhy != "":
		// There is one, or was, and nobody knows what it says.
		g.course.Start(&v1alpha1.DaemonSetRolloutStatus{StableRevision: r.likelyStable(),
			TargetRevision: r.info.Revision})
	case s == nil:
		g.course.Start(&v1alpha1.DaemonSetRolloutStatus{})
	case s.TargetRevision == "" && g.info.PausedWhy != "": // it was made in place of one, and that not said yet
		known := s.DeepCopy()
		known.StableRevision, known.TargetRevision = r.likelyStable(), r.info.Revision
		g.course.Start(known)
	default:
		g.course.Start(s)
	}
}

// likelyStable is the revision for nodes without a pod while nobody can read which one is stable: of the older ones
// that which most pods have. Without those the newest, which then is everywhere.
func (r *Row) likelyStable() string {
	best, most := "", 0
	for revision, n := range r.revisions {
		if revision == "" || revision == r.info.Revision || !content.CanBeMade(revision) {
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

// readyRollout asks for the rollout's status to be written when it differs from what
// the API holds, paced as the DaemonSet's own is, and faster while nodes wait for it.
func (r *Row) readyRollout(out []action.Action) []action.Action {
	g := r.guide
	if g == nil || g.inFlight || g.info.Unread || g.info.Newer {
		return out
	}
	if !g.course.Started() {
		return r.announceCopies(out)
	}
	g.stale = g.due(r.cfg).After(r.now)
	if g.stale {
		return out
	}
	g.looked = r.now
	want := g.course.Status()
	want.Message += r.awaitsFirst(want.Phase)
	want.ObservedGeneration, want.DaemonSetGeneration = g.info.Generation, r.info.Generation
	want.TargetDigest, want.Policy = r.info.Digest, g.info.Followed
	want.Content, want.Images = contentOf(&want, r.info.Content), r.info.Images
	want.Cutoffs = g.course.Cutoffs(g.info.PolicyGeneration)
	if g.stored && apiequality.Semantic.DeepEqual(&want, &g.written) {
		return out
	}
	g.inFlight = true
	out = append(out, news.Of(r.target(), &r.guide.told, &want)...)
	r.guide.told = want
	return append(out, &action.UpdateRollout{Target: r.target(), Status: want,
		Failing: g.course.Failing(), PausedWhy: g.info.PausedWhy})
}

// announceCopies has the rollout say that copies are to be made, while the row is held until they are there.
func (r *Row) announceCopies(out []action.Action) []action.Action {
	g := r.guide
	want := *g.written.DeepCopy()
	want.Content = contentOf(&want, r.info.Content)
	said := want.Content == nil || !want.Content.Preparing || g.written.Content != nil && g.written.Content.Preparing
	g.stale = !said && g.setback.until.After(r.now)
	if said || g.stale {
		return out
	}
	want.Phase = cmp.Or(want.Phase, v1alpha1.PhaseProgressing)
	g.inFlight = true
	return append(out, &action.UpdateRollout{Target: r.target(), Status: want, PausedWhy: g.info.PausedWhy})
}

// contentOf is what a status says of content; what differs from the stable one's is news until it is that.
func contentOf(s *v1alpha1.DaemonSetRolloutStatus, said *v1alpha1.ContentStatus) *v1alpha1.ContentStatus {
	out := v1alpha1.ContentStatus{Stable: content.IDOf(s.StableRevision), Target: content.IDOf(s.TargetRevision)}
	said = cmp.Or(said, &v1alpha1.ContentStatus{})
	if s.StableRevision != s.TargetRevision {
		out.Changes, out.Restarts = said.Changes, said.Restarts
	}
	out.Message, out.Leftover, out.Overtaken = said.Message, said.Leftover, said.Overtaken
	out.OvertakenSince = said.OvertakenSince
	out.Kept, out.Preparing = said.Kept, said.Preparing && out.Stable == "" && out.Target == ""
	if out.Stable == "" && out.Target == "" && out.Message+out.Leftover == "" && !out.Kept && !out.Preparing {
		return nil
	}
	return &out
}

// progressing is the condition of a row that follows a policy.
func (g *guide) progressing(r *Row, counts string) fact.Condition {
	phase, why := g.course.Phase()
	why += r.awaitsFirst(phase)
	status := corev1.ConditionFalse
	switch phase {
	case v1alpha1.PhaseComplete, v1alpha1.PhaseProgressing, v1alpha1.PhaseSoaking:
		status = corev1.ConditionTrue
	}
	const refused = "the API takes the status of its DaemonSetRollout; the controller's log says why it does not"
	switch {
	case g.info.Newer, g.info.Unread && g.info.ToldOf: // what follows must be seen to have been in the middle of something
	case !g.stored && g.setback.failures == 0:
		return fact.Condition{Status: status, Reason: fact.NotStored, Message: counts + "; " + why}
	case !g.stored:
		return fact.False(fact.NotStored, counts+"; nothing begins before "+refused)
	}
	return fact.Condition{Status: status, Reason: fact.FollowsPolicy + string(phase), Message: counts + "; " + why}
}

// due is the earliest moment to look whether the status is to be written.
func (g *guide) due(cfg *Config) time.Time {
	asked := g.says(&g.told) // changes wait for a stage that was not
	if paced := g.looked.Add(cfg.StatusInterval); !g.looked.IsZero() && paced.After(g.setback.until) && asked {
		return paced
	}
	return g.setback.until
}

func (r *Row) rolloutWritten(a *action.UpdateRollout, o action.Outcome) {
	g := r.guide
	if g == nil {
		return
	}
	g.inFlight, g.stale = false, true
	if o == action.OK {
		g.stored, g.written, g.setback = a.Status.TargetRevision != "", a.Status, setback{}
		return
	}
	g.written = v1alpha1.DaemonSetRolloutStatus{} // it may be this one, or that of before
	g.setback.failed(r.now, r.cfg)
}
