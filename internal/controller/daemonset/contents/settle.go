package contents

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// lost is what a policy is that cannot be followed.
const lost = course.Lost

// maxChanges is how many lines say what has changed.
const maxChanges = 20

// errLater says that what is asked for will be known soon.
var errLater = errors.New("it is not known yet")

// settle works out which content the DaemonSet has, and tells the matrix of it as far as it can be used.
func (b *Book) settle(s *set) {
	if s.info == nil {
		return
	}
	if b.concerns(s) {
		b.planned[s.info.UID], b.moved = true, true
	}
	if s.rules == nil {
		b.tell(s, b.without(s))
		return
	}
	want, err := b.work(s)
	switch {
	case errors.Is(err, errLater):
		b.tell(s, b.meanwhile(s))
		return
	case err != nil:
		b.hinder(s, err.Error())
		b.tell(s, b.meanwhile(s))
		return
	}
	s.note(want)
	s.first = cmp.Or(s.first, want.ID)
	if s.latest != want.ID {
		s.latest, s.changed = want.ID, b.now
		if s.restless.IsZero() {
			s.restless = b.now
		}
	}
	whole, err := b.whole(s, s.known[want.ID])
	if why := b.unsound(s, b.stable(s), true); why != "" {
		err = errors.New(why)
	}
	switch {
	case err != nil:
		b.hinder(s, err.Error())
		b.tell(s, b.with(s, want)) // People are to see what cannot be given.
	case !whole:
		b.hinder(s, "")
		b.tell(s, announced(b.meanwhile(s)))
	default:
		s.restless = time.Time{}
		b.hinder(s, "")
		b.tell(s, b.with(s, want))
	}
}

// stable is the revision that there is to go back to; "" if there is none. Where the first one is only stored as on its
// way, it is what pods have of it.
func (b *Book) stable(s *set) string {
	st, _ := b.rollout(s.object.UID)
	if st.StableRevision == "" && b.counts[s.object.UID][st.TargetRevision] > 0 {
		return st.TargetRevision
	}
	return st.StableRevision
}

// note keeps a content that was worked out. It is what a list of that name must say.
func (s *set) note(c content.Content) {
	k := s.known[c.ID]
	switch {
	case k == nil:
		s.known[c.ID] = &known{Content: c}
	case !k.Same(&c):
		k.Content, k.spoiled = c, k.manifest != nil
	}
}

// hinder says why the content cannot be followed; "" if it can.
func (b *Book) hinder(s *set, why string) {
	if s.why == why {
		return
	}
	s.why = why
	if why != "" && s.object != nil {
		b.news = append(b.news, News{DaemonSet: s.object, Warning: true, Reason: "RolloutContentNotFollowed", Message: why})
	}
	if s.rollout != nil {
		b.tellRollout(s)
	}
}

// work returns the content that the objects hold now.
func (b *Book) work(s *set) (content.Content, error) {
	if s.object == nil || s.info.Held || s.object.Generation != s.info.Generation {
		return content.Content{}, errLater
	}
	if t := &s.object.Spec.Template; s.refsOf != t {
		leaves := func(r content.Ref) bool { return !s.rules.Takes(r) }
		s.refs, s.refsOf = slices.DeleteFunc(content.Refs(&t.Spec), leaves), t
	}
	sp := b.space(s.object.Namespace)
	if err := sp.readable(s.refs); err != nil {
		return content.Content{}, err
	}
	var refs []content.Ref
	for _, ref := range s.refs {
		if b.takes(s, sp, ref) {
			refs = append(refs, ref)
		}
	}
	key, err := b.keyFor(s.object.Namespace, refs)
	switch {
	case errors.Is(err, errLater) && s.job.make.why != "":
		return content.Content{}, errors.New(s.job.make.why)
	case err != nil:
		return content.Content{}, err
	}
	if why := b.misfit(s); why != "" && key != nil {
		return content.Content{}, errors.New(why)
	}
	return content.Of(key, s.object.Name, refs, func(ref content.Ref) ([]byte, error) {
		return s.sumOf(sp, key, ref)
	})
}

// sumOf hashes an object once for each of its versions.
func (s *set) sumOf(sp *space, key []byte, ref content.Ref) ([]byte, error) {
	o, at := sp.objects[ref], hashed{ref, ref}
	if o == nil {
		delete(s.sums, at)
		return nil, nil
	}
	have := s.sums[at]
	if have.of != &o.Object || have.keyed != string(key) {
		have = sum{of: &o.Object, keyed: string(key)}
		have.value, have.err = content.Hash(key, s.object.Name, ref, &o.Object)
		s.sums[at] = have
	}
	return have.value, have.err
}

// readable says what cannot be read; errLater if it is still being read.
func (sp *space) readable(refs []content.Ref) error {
	kinds := []content.Kind{content.ConfigMap} // manifests are
	if content.Keyed(refs) {
		kinds = append(kinds, content.Secret)
	}
	for _, kind := range kinds {
		if why := sp.sight[kind].why; why != "" {
			return fmt.Errorf("the content of the revision cannot be read: %s", why)
		}
	}
	for _, kind := range kinds {
		if !sp.sight[kind].read {
			return errLater
		}
	}
	return nil
}

// unsound says why a revision cannot be given; "" if it can. A copy that is gone is no hindrance where it is made again
// meanwhile.
func (b *Book) unsound(s *set, revision string, meanwhile bool) (why string) {
	id := content.IDOf(revision)
	if id == "" {
		return ""
	}
	k := s.known[id]
	if k == nil {
		return fmt.Sprintf("the list of what revision %s holds is gone", revision)
	}
	for _, m := range k.Members {
		switch flaw := b.flaw(s, k, m); {
		case flaw == "", flaw == gone && m.Absent: // nothing is missing where there is to be nothing
		case flaw != gone || b.held(s, &k.Content, m) == nil:
			return fmt.Sprintf("revision %s cannot be given: %s %s", revision, m.CopyRef(), flaw)
		case !meanwhile:
			why = cmp.Or(why, fmt.Sprintf("%s, which revision %s needs, is gone, and is to be made first",
				m.CopyRef(), revision))
		}
	}
	if flaw := b.listFlaw(s, k); flaw != "" {
		return fmt.Sprintf("revision %s cannot be given: %s %s", revision, s.listOf(id), flaw)
	}
	return why
}

// Unsound says why no pod of a revision is to be made or pointed at its content; "" if it may. What somebody has put in
// place of a copy is read by nobody, and what is not there yet, or again, is waited for: a pod whose reference is
// optional would start without it.
func (b *Book) Unsound(uid types.UID, revision string) string {
	if s := b.sets[uid]; s != nil && s.object != nil {
		return b.unsound(s, content.WithVariants(revision, ""), false)
	}
	return ""
}

// Given are the members of a revision's content; false where no pod may be pointed at it.
func (b *Book) Given(uid types.UID, revision string) ([]content.Member, bool) {
	if b.Unsound(uid, revision) != "" {
		return nil, false
	}
	return b.Members(uid, content.IDOf(revision))
}

// adds reports whether a content is that of its copies, as far as they can be read: each may be genuine, and
// another have been put on the list.
func (b *Book) adds(s *set, k *known) bool {
	key, err := b.keyFor(s.object.Namespace, k.Refs())
	if err != nil {
		return true // which is told of the copies
	}
	sums := make(map[content.Ref][]byte, len(k.Members))
	for _, m := range k.Members {
		if m.Absent {
			continue
		}
		have := s.sums[hashed{m.CopyRef(), m.Ref}]
		if have.value == nil || have.keyed != string(key) || !m.Names(have.value) {
			return true
		}
		sums[m.Ref] = have.value
	}
	return k.Adds(key, s.object.Name, func(ref content.Ref) ([]byte, error) { return sums[ref], nil })
}

// whole reports whether all copies of a content are there, and its manifest; the error says why they
// cannot be relied on, or made.
func (b *Book) whole(s *set, k *known) (bool, error) {
	switch {
	case k.spoiled:
		return false, fmt.Errorf("%s %s", s.listOf(k.ID), spoiled)
	case s.job.make.why != "":
		return false, errors.New(s.job.make.why)
	}
	of, why := b.missing(s, k)
	if why != "" && why != gone {
		return false, fmt.Errorf("%s %s", of, why)
	}
	return why == "" && b.stays(s, k), nil
}

// missing returns the first copy of a content that is not there, or spoiled, and what is wrong with it; "" if each is
// as it was made.
func (b *Book) missing(s *set, k *known) (copied content.Ref, why string) {
	for _, m := range k.Members {
		if why = b.flaw(s, k, m); why != "" {
			return m.CopyRef(), why
		}
	}
	return content.Ref{}, ""
}

// What can be wrong with a copy or a list.
const (
	gone    = "is gone"
	spoiled = "was changed after it was made"
)

// flaw says what is wrong with one copy; "" if nothing is. Of a kind that nobody reads nothing is known.
func (b *Book) flaw(s *set, k *known, m content.Member) string {
	sp := b.space(s.object.Namespace)
	if !sp.sight[m.Kind].read || !m.HasCopy() {
		return ""
	}
	key, err := b.keyFor(s.object.Namespace, k.Refs())
	o := sp.objects[m.CopyRef()]
	switch {
	case o == nil:
		return gone
	case err != nil:
		return "cannot be checked: " + err.Error()
	case !s.genuine(key, m, o):
		return sp.unlike(k, o)
	case !o.Immutable:
		return "is not immutable any more, so what it holds can be changed under the pods that read it"
	case s.inherits(o.meta): // it goes with the DaemonSet that had the name before, unless it is taken over
		return gone
	}
	return ""
}

// genuine reports whether a copy holds what it must; each is hashed once.
func (s *set) genuine(key []byte, m content.Member, o *object) bool {
	at := hashed{o.Ref, m.Ref}
	have := s.sums[at]
	if have.of != &o.Object || have.keyed != string(key) {
		have = sum{of: &o.Object, keyed: string(key)}
		have.value, have.err = content.Hash(key, s.object.Name, m.Ref, &o.Object)
		s.sums[at] = have
	}
	return have.err == nil && m.Fits(&o.Object, have.value)
}

// without is the DaemonSet where content is no part of its revisions. While the policy cannot be read, a
// rollout that speaks of content is left where it is.
func (b *Book) without(s *set) fact.DaemonSet {
	info := *s.info
	if s.rollout != nil && s.rollout.Policy == nil {
		st, _ := b.rollout(info.UID)
		is := st.TargetRevision
		if content.IDOf(is) != "" && content.TemplateOf(is) == info.Revision {
			info.Revision, info.Digest, info.Content = is, b.digestOf(s, is), st.Content
		}
	}
	if info.Content == nil && s.rollout != nil && b.Keeps(info.UID) {
		info.Content = &v1alpha1.ContentStatus{Kept: true}
	}
	return info
}

// with is the DaemonSet with a content.
func (b *Book) with(s *set, c content.Content) fact.DaemonSet {
	info := *s.info
	info.Revision = content.Revision(info.Revision, c.ID)
	info.Digest = Digest(info.Digest, c.Digest)
	info.Content = b.changes(s, &c)
	return info
}

// meanwhile is the DaemonSet while its content cannot be used: with the content it had, if its template is
// the same. With another template nothing is done about it until its content is known, or known not to be.
func (b *Book) meanwhile(s *set) fact.DaemonSet {
	info := *s.info
	was, said := "", (*v1alpha1.ContentStatus)(nil)
	if s.told != nil {
		was, said = s.told.Revision, s.told.Content
	} else if st, known := b.rollout(info.UID); known {
		was, said = st.TargetRevision, st.Content
	}
	switch {
	case content.TemplateOf(was) == info.Revision && (s.told != nil || content.IDOf(was) != ""):
		info.Revision, info.Digest, info.Content = was, b.digestOf(s, was), said
		unknown := s.told == nil || !b.given(s, was) || s.byTemplate() && len(b.counts[info.UID]) > 0
		info.Held = info.Held || s.why == "" && unknown
	case s.told != nil && s.why == "":
		held := *s.told
		held.Held, held.Deleting, held.Reported, held.Conditions = true, info.Deleting, info.Reported, info.Conditions
		return held
	default:
		info.Held = info.Held || s.why == ""
	}
	return info
}

// announced is the DaemonSet, and that copies are to be made.
func announced(info fact.DaemonSet) fact.DaemonSet {
	said := ptr.Deref(info.Content, v1alpha1.ContentStatus{})
	said.Preparing = true
	info.Content = &said
	return info
}

// given reports whether a revision that was told is there to be given: there are copies of its content, for all that is
// known. After a start nobody knows that yet of what a status names; and without content no pod of a new DaemonSet was
// to have it, nor one of a stable revision with content: a program that knows none may have named the target.
func (b *Book) given(s *set, revision string) bool {
	if id := content.IDOf(revision); id != "" {
		k := s.known[id]
		if k == nil {
			return false
		}
		_, why := b.missing(s, k)
		return why == "" && b.stays(s, k)
	}
	st, _ := b.rollout(s.info.UID)
	if st.StableRevision == "" {
		return b.rows.PodsOfRevision(s.info.UID, revision) > 0
	}
	return content.IDOf(st.StableRevision) == ""
}

// changes says how the content differs from the stable one.
func (b *Book) changes(s *set, c *content.Content) *v1alpha1.ContentStatus {
	st, _ := b.rollout(s.object.UID)
	out := &v1alpha1.ContentStatus{}
	id := content.IDOf(st.StableRevision)
	if st.StableRevision == "" || id == c.ID || id != "" && s.known[id] == nil {
		return out
	}
	var before *content.Content
	if from := s.known[id]; from != nil {
		before = &from.Content
	}
	out.Changes = content.Changes(before, c, maxChanges, func(m content.Member) *content.Object {
		if slices.Contains(c.Members, m) {
			return b.held(s, c, m)
		}
		return b.held(s, before, m)
	})
	return out
}

// overtaken counts the times that the content has become another before the one before was everywhere.
func (b *Book) overtaken(s *set, info *fact.DaemonSet) *v1alpha1.ContentStatus {
	st, known := b.rollout(info.UID)
	have := st.Content
	if s.told != nil && s.told.Content != nil {
		have = s.told.Content
	}
	id := content.IDOf(info.Revision)
	if info.Content == nil || !known || id == content.IDOf(st.StableRevision) {
		return info.Content
	}
	said := *info.Content
	if have != nil {
		said.Overtaken, said.OvertakenSince = have.Overtaken, have.OvertakenSince
	}
	before := content.IDOf(st.TargetRevision)
	if s.told != nil {
		before = content.IDOf(s.told.Revision)
	}
	if before != id && before != content.IDOf(st.StableRevision) {
		said.Overtaken++
		if said.OvertakenSince == nil {
			said.OvertakenSince = &metav1.Time{Time: b.now.UTC().Truncate(time.Second)}
		}
	}
	return &said
}

// tell tells the matrix of the DaemonSet, with what people are to know of its content. Equal values are the
// same one, so that they are no news.
func (b *Book) tell(s *set, info fact.DaemonSet) {
	if s.why != "" {
		said := ptr.Deref(info.Content, v1alpha1.ContentStatus{})
		said.Message = s.why
		info.Content = &said
	} else if info.Content != nil && info.Content.Message != "" {
		info.Content = &v1alpha1.ContentStatus{Changes: info.Content.Changes}
	}
	b.tellLeft(s, &info)
	was := s.told
	info.Renamed = b.renamed(s, info.Revision)
	info.Live = b.ways(s, &info)
	if s.rules != nil && s.rules.Live && info.Content != nil {
		said := *info.Content
		said.Restarts = b.restarts(s, &info)
		info.Content = &said
	}
	info.Content = b.overtaken(s, &info)
	if was != nil && apiequality.Semantic.DeepEqual(was.Content, info.Content) {
		info.Content = was.Content
	}
	if was != nil && content.IDOf(was.Revision) != content.IDOf(info.Revision) && info.Content != nil {
		for _, change := range info.Content.Changes {
			b.news = append(b.news, News{
				DaemonSet: s.object, Reason: "RolloutContentChanged",
				Message: fmt.Sprintf("revision %s: %s", info.Revision, change),
			})
		}
	}
	b.pass(s, info)
}
