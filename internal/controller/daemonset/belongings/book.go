package belongings

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Rows is what a Book tells and asks of a matrix.
type Rows interface {
	Step(e matrix.Event)
	Pod(uid types.UID) (fact.Pod, bool)
	Pods() []types.UID
	PodsOfRevision(uid types.UID, revision string) int
	// Makes are the revisions of which pods may still have to be made, though none has them; some may be "".
	Makes(uid types.UID) []string
}

// Book holds all DaemonSets with what belongs to them.
type Book struct {
	rows      Rows
	normalize func(*corev1.PodTemplateSpec)
	now       time.Time
	sets      map[types.UID]*daemonSet
	setsIn    map[string]map[types.UID]*daemonSet // by namespace
	pods      index[*corev1.Pod]
	revisions index[*appsv1.ControllerRevision]
	digests   map[types.UID]string // of revisions, as far as somebody asked
	// writing is how many RevisionJobs are under way, and gone are the revisions that were deleted meanwhile: what
	// such a job wrote before does not bring them back.
	writing int
	gone    map[types.UID]bool
	// claims and retries are the DaemonSets with something queued or to be
	// tried again.
	claims  map[types.UID]*daemonSet
	retries map[types.UID]time.Time
	jobs    []Job
	audit   *audit // under way; nil if there is none
	// Live tells that the API server lets the controller alone point pods at content. Elsewhere anybody who may write
	// pods writes the annotation, and could hide by it how often a pod restarts.
	Live bool
	// Guest tells that another controller looks after revisions and pods: none is written or adopted here, and all
	// revisions have the newest one's placement, by which that controller goes.
	Guest bool
	// copies are the revisions that rollouts keep, by the UID of their DaemonSet and their own.
	copies map[types.UID]map[types.UID]*appsv1.ControllerRevision
}

// New returns an empty book. normalize fills a template's defaults in; it may be
// nil.
func New(rows Rows, normalize func(*corev1.PodTemplateSpec)) *Book {
	return &Book{
		rows: rows, normalize: normalize,
		sets:      map[types.UID]*daemonSet{},
		setsIn:    map[string]map[types.UID]*daemonSet{},
		pods:      newIndex[*corev1.Pod](),
		revisions: newIndex[*appsv1.ControllerRevision](),
		digests:   map[types.UID]string{},
		gone:      map[types.UID]bool{},
		claims:    map[types.UID]*daemonSet{},
		retries:   map[types.UID]time.Time{},
		copies:    map[types.UID]map[types.UID]*appsv1.ControllerRevision{},
	}
}

// Event is what a Book is told: an object, the time, or what became of a job.
type Event interface{ event() }

// DaemonSet is a DaemonSet as it is now, or gone.
type DaemonSet struct {
	Object *appsv1.DaemonSet
	Gone   bool
}

// Revision is a ControllerRevision as it is now, or gone. Added says that nothing
// but its appearance happened.
type Revision struct {
	Object      *appsv1.ControllerRevision
	Gone, Added bool
}

// Retell has the matrix be told again of a pod.
func (b *Book) Retell(uid types.UID) {
	if p := b.pods.all[uid]; p != nil {
		b.claimPod(p)
	}
}

// Pod is a pod as it is now, or gone.
type Pod struct {
	Object *corev1.Pod
	Gone   bool
}

// Now says what time it is.
type Now struct{ time.Time }

func (DaemonSet) event()      {}
func (Revision) event()       {}
func (Pod) event()            {}
func (Now) event()            {}
func (RevisionResult) event() {}
func (CleanupResult) event()  {}
func (ClaimResult) event()    {}

// Step takes an event in.
func (b *Book) Step(e Event) {
	switch e := e.(type) {
	case DaemonSet:
		if e.Gone {
			b.onDaemonSetGone(e.Object)
		} else {
			b.onDaemonSet(e.Object)
		}
	case Revision:
		b.onRevision(e)
	case Pod:
		// A pod that came and went between two turns must still be seen once:
		// a cell may be waiting for it.
		if !e.Gone || !b.pods.has(e.Object.UID) {
			b.onPod(e.Object)
		}
		if e.Gone {
			b.onPodGone(e.Object)
		}
	case Now:
		b.now = e.Time
	case RevisionResult:
		b.onHistory(e)
	case CleanupResult:
		b.onCleanUp(e)
	case ClaimResult:
		b.onClaims(e)
	}
}

// Jobs returns what is to be done now, each once: it is under way until its result
// is told.
func (b *Book) Jobs() []Job {
	for uid, at := range b.retries {
		if at.After(b.now) {
			continue
		}
		delete(b.retries, uid)
		if s := b.sets[uid]; s != nil {
			b.sync(s)
		}
	}
	if !b.Guest {
		b.flushClaims()
	}
	jobs := b.jobs
	b.jobs = nil
	return jobs
}

// NextTick returns when there is something to do by time alone, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	for _, t := range b.retries {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Acted returns the version of a DaemonSet whose spec is acted on, and the newest
// one; nil if there is none.
func (b *Book) Acted(uid types.UID) (acted, latest *appsv1.DaemonSet) {
	if s := b.sets[uid]; s != nil {
		return s.acted, s.latest
	}
	return nil, nil
}

// Pod returns a pod as it was last seen; nil if there is none.
func (b *Book) Pod(uid types.UID) *corev1.Pod { return b.pods.all[uid] }

// Revision returns the DaemonSet's revision with the hash; nil if there is none.
// Current tells that it is the one of the template that is acted on.
func (b *Book) Revision(uid types.UID, hash string) (r *appsv1.ControllerRevision, current bool) {
	for _, r := range b.revisions.byOwner[uid] {
		if history.HashOf(r) == hash {
			s := b.sets[uid]
			return r, s != nil && s.revision == hash
		}
	}
	s := b.sets[uid]
	return nil, s != nil && s.revision == hash
}

// Digest returns that of the template of the DaemonSet's revision; "" if there is no such
// revision, or it cannot be read.
func (b *Book) Digest(uid types.UID, hash string) string {
	r, _ := b.Revision(uid, hash)
	if r == nil {
		return ""
	}
	digest, known := b.digests[r.UID]
	if !known {
		digest, _ = history.Digest(r)
		b.digests[r.UID] = digest
	}
	return digest
}

// Job is something to write: *RevisionJob, *CleanupJob, *ClaimJob or *Notice.
type Job interface{ Set() *appsv1.DaemonSet }

// RevisionJob brings the revisions of a DaemonSet in order, in the order of its
// fields.
type RevisionJob struct {
	DaemonSet      *appsv1.DaemonSet
	Adopt, Release []*appsv1.ControllerRevision
	Plan           history.Plan
	Relabel        []*corev1.Pod // pods of the plan's duplicates
}

// RevisionResult is what came of it, also as far as a failed job got.
type RevisionResult struct {
	Job *RevisionJob
	// Hash is the current revision's, if the job got as far as to know it.
	Hash             string
	Written, Deleted []*appsv1.ControllerRevision
	Pods             []*corev1.Pod // that got another hash
	// DaemonSet is its newest version, if its collision count was raised.
	DaemonSet *appsv1.DaemonSet
	Failed    bool
}

// CleanupJob deletes these versions of old revisions.
type CleanupJob struct {
	DaemonSet *appsv1.DaemonSet
	Revisions []*appsv1.ControllerRevision
}

// CleanupResult is what came of it.
type CleanupResult struct {
	Job     *CleanupJob
	Deleted []*appsv1.ControllerRevision
	Failed  bool
}

// ClaimJob adopts and releases pods.
type ClaimJob struct {
	DaemonSet      *appsv1.DaemonSet
	Adopt, Release []*corev1.Pod
}

// ClaimResult is what came of it.
type ClaimResult struct {
	Job  *ClaimJob
	Pods []ClaimedPod
}

// ClaimedPod is what came of adopting or releasing one pod.
type ClaimedPod struct {
	Pod     *corev1.Pod // as it was known
	Adopted bool        // or else released
	Updated *corev1.Pod // as the API holds it now, if it was adopted
	// Failed says that it is to be tried again. A pod that is gone, or that the
	// DaemonSet may not take any more, is none.
	Failed bool
}

// Notice is an event for people, or an error that waiting does not mend.
type Notice struct {
	DaemonSet       *appsv1.DaemonSet
	Reason, Message string
	Err             error
}

// Set is the DaemonSet that the job is for.
func (j *RevisionJob) Set() *appsv1.DaemonSet { return j.DaemonSet }

// Set is the DaemonSet that the job is for.
func (j *CleanupJob) Set() *appsv1.DaemonSet { return j.DaemonSet }

// Set is the DaemonSet that the job is for.
func (j *ClaimJob) Set() *appsv1.DaemonSet { return j.DaemonSet }

// Set is the DaemonSet that the job is for.
func (j *Notice) Set() *appsv1.DaemonSet { return j.DaemonSet }
