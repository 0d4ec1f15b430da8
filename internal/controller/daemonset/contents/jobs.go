package contents

import (
	"cmp"
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
	// Why says what hindered it; "" if nothing did.
	Why string
}

// jobState is what was tried for a DaemonSet.
type jobState struct {
	busy bool
	// going is what the job that is under way deletes: it may be gone at any moment.
	going    []metav1.Object
	failures int
	retryAt  time.Time
	why      string
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
		if s := b.sets[uid]; s != nil && b.concerns(s) {
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
		j.Make = b.missingOf(s, sp, wanted)
	}
	if sure {
		j.Delete = b.leftovers(s, sp, wanted)
	}
	switch {
	case j.empty() && s.job.why == "":
		return nil
	case j.empty(): // what failed is not wanted any more
		s.job = jobState{}
		b.lookAgain(s, b.now)
		return nil
	case s.job.retryAt.After(b.now):
		b.lookAgain(s, s.job.retryAt)
		return nil
	}
	s.job.busy, s.job.going = true, j.Delete
	return j
}

// missingOf returns what is missing of all wanted contents that may be made now.
func (b *Book) missingOf(s *set, sp *space, wanted map[string]bool) (out []metav1.Object) {
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if k := s.known[id]; k != nil && !k.spoiled && b.ripe(s, id) {
			out = append(out, b.make(s, sp, k)...)
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

// wantsKey reports whether a key is to be made: what is to be hashed needs one, and there is none. One that somebody
// deletes is made again for as long as copies are checked with it.
func (b *Book) wantsKey(s *set, sp *space) bool {
	if !sp.sight[content.Secret].read || sp.objects[keyRef] != nil {
		return false
	}
	keyed := func(k *known) bool { return content.Keyed(k.Refs()) }
	return s.rules != nil && content.Keyed(s.refs) ||
		sp.key != nil && slices.ContainsFunc(slices.Collect(maps.Values(s.known)), keyed)
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
func (b *Book) make(s *set, sp *space, k *known) (out []metav1.Object) {
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
		there := sp.objects[content.Ref{Kind: m.Kind, Name: m.Copy}]
		if m.Absent || !sp.sight[m.Kind].read || there != nil && !s.inherits(there.meta) {
			continue
		}
		o := b.held(s, m)
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
	meta := s.metaFor(m.Copy, content.IsCopy)
	if m.Kind == content.Secret {
		return &corev1.Secret{ObjectMeta: meta, Data: o.Binary, Type: corev1.SecretTypeOpaque, Immutable: ptr.To(true)}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: o.Data, BinaryData: o.Binary, Immutable: ptr.To(true)}
}

// keeps reports whether an object stands for content of the DaemonSet, or of one that had the name before, if it
// is listed.
func (s *set) keeps(o *object, listed bool) bool {
	is := o.Labels[content.Label]
	return (is == content.IsCopy || is == content.IsManifest) && (s.owns(o.meta) || listed && s.inherits(o.meta))
}

// listed are the manifests and copies of all contents that are known.
func (s *set) listed() map[content.Ref]bool {
	all := make(map[string]bool, len(s.known))
	for id := range s.known {
		all[id] = true
	}
	return s.needed(all)
}

// needed are the manifests and copies of such contents; nil where it is not known which copies one needs.
func (s *set) needed(wanted map[string]bool) map[content.Ref]bool {
	needed := map[content.Ref]bool{}
	for id := range wanted {
		k := s.known[id]
		if k == nil {
			return nil
		}
		needed[content.Ref{Kind: content.ConfigMap, Name: content.ManifestName(s.object.Name, id)}] = true
		for _, m := range k.Members {
			needed[content.Ref{Kind: m.Kind, Name: m.Copy}] = true
		}
	}
	return needed
}

// leftovers are copies and manifests of the DaemonSet that nobody has needed for a while.
func (b *Book) leftovers(s *set, sp *space, wanted map[string]bool) (out []metav1.Object) {
	needed := s.needed(wanted)
	if needed == nil {
		return nil
	}
	for id := range s.known {
		if !wanted[id] && s.known[id].manifest == nil {
			delete(s.known, id)
			b.lookAgain(s, b.now) // where it was the last one, this is told
		}
	}
	since := map[content.Ref]time.Time{}
	listed := s.listed()
	for ref, o := range sp.objects {
		if needed[ref] || !s.keeps(o, listed[ref]) {
			continue
		}
		at, known := s.unwanted[ref]
		if !known {
			at = b.now
		}
		since[ref] = at
		if gone := at.Add(b.Linger); gone.After(b.now) {
			b.lookAgain(s, gone)
		} else {
			out = append(out, o.meta)
		}
	}
	if len(s.known) > len(wanted) || len(wanted) > 1 || s.rules == nil && len(wanted) > 0 {
		b.lookAgain(s, b.now.Add(b.Linger)) // What is stable may be another by then.
	}
	s.unwanted = since
	out = slices.DeleteFunc(out, func(o metav1.Object) bool { return b.listsMore(sp, s, needed, out, o) })
	maps.DeleteFunc(sp.lost, func(ref content.Ref, o *object) bool { return s.owns(o.meta) && !needed[ref] })
	maps.DeleteFunc(s.sums, func(ref content.Ref, _ sum) bool { return sp.objects[ref] == nil })
	slices.SortFunc(out, byManifest)
	return out
}

// listsMore reports whether an object is a manifest that must stay for a while: it lists a copy that is there, or may
// be, and is neither needed nor among those that go now. Without it nobody would know that there is one.
func (b *Book) listsMore(sp *space, s *set, needed map[content.Ref]bool, going []metav1.Object, o metav1.Object) bool {
	for _, k := range s.known {
		if k.manifest == nil || k.manifest.GetUID() != o.GetUID() {
			continue
		}
		for _, m := range k.Members {
			ref := content.Ref{Kind: m.Kind, Name: m.Copy}
			copied := sp.objects[ref]
			goes := copied != nil && slices.ContainsFunc(going, func(g metav1.Object) bool {
				return g.GetUID() == copied.meta.GetUID()
			})
			switch {
			case m.Absent, needed[ref], goes:
			case copied != nil, !sp.sight[m.Kind].read:
				return true
			}
		}
	}
	return false
}

// byManifest puts manifests last: what lists a copy outlives it.
func byManifest(a, c metav1.Object) int {
	rank := func(o metav1.Object) int {
		if o.GetLabels()[content.Label] == content.IsManifest {
			return 1
		}
		return 0
	}
	return cmp.Or(rank(a)-rank(c), cmp.Compare(a.GetName(), c.GetName()))
}

func (b *Book) onResult(r Result) {
	for _, o := range r.Made {
		b.onObject(Object{Object: o})
	}
	for _, o := range r.Deleted {
		b.onObject(Object{Object: o, Gone: true})
	}
	s := b.sets[r.Job.DaemonSet.UID]
	if s == nil {
		return
	}
	b.dirty[r.Job.DaemonSet.UID] = true
	s.job.busy, s.job.going, s.job.why = false, nil, r.Why
	if r.Why == "" {
		s.job.failures, s.job.retryAt = 0, time.Time{}
		return
	}
	s.job.failures++
	s.job.retryAt = b.now.Add(min(time.Second<<min(s.job.failures, 6), time.Minute))
}
