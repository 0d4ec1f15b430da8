package contents

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

// linger is Book.Linger as it is unless something else is said.
const linger = 2 * time.Minute

// settles is how many times as long as to settle an object can keep others waiting that is written again and again.
const settles = 24

// Job is what is to be written for one DaemonSet, in the order of its fields.
type Job struct {
	DaemonSet *appsv1.DaemonSet
	// Key is the Secret with the key of the namespace. Without data it is to get a key that nobody knows.
	Key *corev1.Secret
	// Make are manifests, each before the copies that it lists: *corev1.ConfigMap and *corev1.Secret.
	Make []metav1.Object
	// Delete are copies and manifests that nobody needs.
	Delete []metav1.Object
}

func (j *Job) empty() bool { return j.Key == nil && len(j.Make)+len(j.Delete) == 0 }

// Result is what became of a job, as far as it got.
type Result struct {
	Job           *Job
	Made, Deleted []metav1.Object
	// Why says what hindered it before anything was deleted; "" if nothing did. Left is why something cannot be deleted.
	Why, Left string
}

// jobState is what was tried for a DaemonSet.
type jobState struct {
	busy bool
	// going is what the job that is under way deletes: it may be gone at any moment.
	going []metav1.Object
	// ended are objects that were told to be gone since it began: its result may be older than that.
	ended map[types.UID]bool
	// What nobody needs hinders no change when it cannot be deleted.
	make, delete attempt
}

// attempt is what came of what was tried last.
type attempt struct {
	failures int
	retryAt  time.Time
	why      string
}

// note keeps what hindered it; "" if nothing did.
func (a *attempt) note(why string, now time.Time) {
	if why == "" {
		*a = attempt{}
		return
	}
	failures := a.failures + 1
	*a = attempt{failures, now.Add(min(time.Second<<min(failures, 6), time.Minute)), why}
}

// Jobs returns what is to be done now, each once: it is under way until its result is told.
func (b *Book) Jobs() (jobs []*Job) {
	b.renameAll()
	for uid, at := range b.due {
		if !at.After(b.now) {
			delete(b.due, uid)
			b.dirty[uid] = true
		}
	}
	for uid := range b.dirty {
		if s := b.sets[uid]; s != nil && (b.concerns(s) || s.left != "") {
			b.settle(s)
		}
		b.planned[uid] = true
	}
	b.dirty = map[types.UID]bool{}
	for _, uid := range slices.Sorted(maps.Keys(b.planned)) {
		if s := b.sets[uid]; s != nil && s.object != nil && s.object.DeletionTimestamp == nil {
			if job := b.plan(s); job != nil {
				jobs = append(jobs, job)
			}
		}
	}
	clear(b.planned)
	return jobs
}

// NextTick returns when there is something to do by time alone, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	for _, t := range b.due {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

func (b *Book) lookAgain(s *set, at time.Time) {
	if have, is := b.due[s.object.UID]; !is || at.Before(have) {
		b.due[s.object.UID] = at
	}
}

// plan returns what is to be written for a DaemonSet; nil for nothing.
func (b *Book) plan(s *set) *Job {
	sp := b.spaces[s.object.Namespace]
	if sp == nil || !sp.sight[content.ConfigMap].read || s.job.busy {
		return nil
	}
	j := &Job{DaemonSet: s.object}
	if b.wantsKey(s, sp) {
		j.Key = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.object.Namespace, Name: content.KeyName, Labels: map[string]string{content.Label: content.IsKey},
			},
			Immutable: ptr.To(true),
		}
		if sp.key != nil {
			j.Key.Data = map[string][]byte{"key": sp.key}
		}
	}
	wanted, sure := b.wanted(s)
	if b.speaks(s) {
		j.Make = b.missingOf(s, wanted)
	}
	if sure {
		j.Delete = b.leftovers(s, sp, wanted)
	}
	if b.waits(s, &s.job.make, j.Key != nil || len(j.Make) > 0) {
		j.Key, j.Make = nil, nil
	}
	if b.waits(s, &s.job.delete, len(j.Delete) > 0) {
		j.Delete = nil
	}
	if j.empty() {
		return nil
	}
	s.job.busy, s.job.going = true, j.Delete
	return j
}

// waits reports whether something is not to be tried again yet. What failed and is not wanted any more is forgotten.
func (b *Book) waits(s *set, a *attempt, wanted bool) bool {
	switch {
	case !wanted && a.why != "":
		*a = attempt{}
		b.lookAgain(s, b.now)
	case a.retryAt.After(b.now):
		b.lookAgain(s, a.retryAt)
		return true
	}
	return false
}

// missingOf returns what is missing of all wanted contents that may be made now.
func (b *Book) missingOf(s *set, wanted map[string]bool) (out []metav1.Object) {
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if k := s.known[id]; k != nil && !k.spoiled && b.adds(s, k) && b.ripe(s, id) {
			out = append(out, b.make(s, k)...)
		}
	}
	return out
}

// stays reports whether the manifest of a content is there, and the job that is under way deletes nothing of it.
func (b *Book) stays(s *set, k *known) bool {
	if k.manifest == nil || len(s.job.going) == 0 {
		return k.manifest != nil
	}
	needed := s.needed(map[string]bool{k.ID: true})
	return !slices.ContainsFunc(s.job.going, func(o metav1.Object) bool { return needed[read(o).Ref] })
}

// wanted are the IDs of the contents that somebody needs; sure is false while it is not known of all.
func (b *Book) wanted(s *set) (ids map[string]bool, sure bool) {
	ids = map[string]bool{}
	add := func(id string) {
		if id != "" {
			ids[id] = true
		}
	}
	for revision := range b.counts[s.object.UID] {
		add(content.IDOf(revision))
	}
	if s.rollout == nil {
		return ids, s.told != nil
	}
	_, known := b.rollout(s.object.UID)
	for _, revision := range b.Makes(s.object.UID) {
		add(content.IDOf(revision))
	}
	if s.rules != nil {
		add(s.latest)
	}
	if s.told != nil {
		add(content.IDOf(s.told.Revision))
	}
	return ids, known && s.told != nil
}

// ripe reports whether the copies of a content may be made now: those of what the objects hold wait until
// nobody has changed them for a while, so that several edits are one change; but not for ever, since another
// template waits too. A new DaemonSet does not wait.
func (b *Book) ripe(s *set, id string) bool {
	if id != s.latest || s.rules == nil {
		return true
	}
	st, _ := b.rollout(s.object.UID)
	at := s.changed.Add(s.rules.Settle)
	if most := s.restless.Add(settles * s.rules.Settle); most.Before(at) {
		at = most
	}
	if st.StableRevision == "" || content.IDOf(st.TargetRevision) == id || !at.After(b.now) {
		return true
	}
	b.lookAgain(s, at)
	return false
}

// make returns what is missing of a content: its manifest, then its copies, so that each copy is listed before it is
// there.
func (b *Book) make(s *set, k *known) (out []metav1.Object) {
	if k.manifest == nil || s.inherits(k.manifest) {
		data, err := k.Manifest()
		if err != nil {
			return nil // It is made of text.
		}
		out = append(out, &corev1.ConfigMap{
			ObjectMeta: s.metaFor(content.ManifestName(s.object.Name, k.ID), content.IsManifest),
			Data:       data, Immutable: ptr.To(true),
		})
	}
	for _, m := range k.Members {
		if b.flaw(s, k, m) != gone {
			continue
		}
		o := b.held(s, &k.Content, m)
		if o == nil {
			return nil // It cannot be whole any more, which settle says.
		}
		out = append(out, s.copyOf(m, o))
	}
	return out
}

// metaFor is what a copy has beside its data: nothing of the original.
func (s *set) metaFor(name, is string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.object.Namespace, Name: name, Labels: map[string]string{content.Label: is},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.object, belongings.Kind)},
	}
}

func (s *set) copyOf(m content.Member, o *content.Object) metav1.Object {
	meta := s.metaFor(m.CopyRef().Name, content.IsCopy)
	if m.Kind == content.Secret {
		return &corev1.Secret{ObjectMeta: meta, Data: o.Binary, Type: corev1.SecretTypeOpaque, Immutable: ptr.To(true)}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: o.Data, BinaryData: o.Binary, Immutable: ptr.To(true)}
}

// endsInJobs notes the end of an object for the jobs of its namespace that are under way.
func (b *Book) endsInJobs(o metav1.Object) {
	for _, s := range b.sets {
		if s.job.busy && s.object != nil && s.object.Namespace == o.GetNamespace() {
			if s.job.ended == nil {
				s.job.ended = map[types.UID]bool{}
			}
			s.job.ended[o.GetUID()] = true
		}
	}
}

// onResult takes in what became of a job. What was told of an object meanwhile may be news of later.
func (b *Book) onResult(r Result) {
	s := b.sets[r.Job.DaemonSet.UID]
	for _, o := range r.Made {
		if s == nil || !s.job.ended[o.GetUID()] {
			b.onObject(Object{Object: o})
		}
	}
	for _, o := range r.Deleted {
		b.onObject(Object{Object: o, Gone: true})
	}
	if s == nil {
		return
	}
	b.dirty[r.Job.DaemonSet.UID] = true
	s.job.busy, s.job.going, s.job.ended = false, nil, nil
	if r.Job.Key != nil || len(r.Job.Make) > 0 { // one that only deletes tells nothing of what cannot be made
		s.job.make.note(r.Why, b.now)
	}
	if r.Why == "" && len(r.Job.Delete) > 0 {
		s.job.delete.note(r.Left, b.now)
	}
}
