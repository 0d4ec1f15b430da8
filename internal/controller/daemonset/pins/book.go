package pins

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Patience is how long a first pod may pull before another node is first too.
const Patience = 10 * time.Minute

// onItsWay is how long a pod that was asked for may not have been seen.
const onItsWay = time.Minute

// Objects are what the API holds.
type Objects interface {
	// Acted is the DaemonSet as it is acted on; nil if there is none.
	Acted(uid types.UID) (acted, latest *appsv1.DaemonSet)
	// Pod is nil if there is none.
	Pod(uid types.UID) *corev1.Pod
}

// rows is the matrix.
type rows = contents.Rows

// Book knows the digests of all DaemonSets.
type Book struct {
	rows
	// Objects is set before the first event; Guest tells that another controller makes the pods.
	Objects Objects
	Guest   bool
	now     time.Time
	sets    map[types.UID]*set
	// strays are pods of which the matrix was told another revision than they say.
	strays map[types.UID]fact.Pod
}

// set is a DaemonSet whose policy pins.
type set struct {
	info  *fact.DaemonSet
	found map[string]v1alpha1.PinnedTemplate // by the template's hash
	// first are the pods that may tell, and since when; begun is when one was asked for that is not seen yet.
	first map[types.UID]time.Time
	begun time.Time
	told  *v1alpha1.ImagesStatus
	// stored is what the rollout went to, and back to, when it was stored: after a start all that is known at first.
	stored []string
	// settled tells that every node is to have the newest template, beside another controller.
	settled bool
}

// New returns an empty book.
func New(of contents.Rows) *Book {
	return &Book{rows: of, sets: map[types.UID]*set{}, strays: map[types.UID]fact.Pod{}}
}

// Step takes an event for the matrix in, and passes it on.
func (b *Book) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.Rollout:
		b.onRollout(e)
	case fact.RolloutGone:
		b.rows.Step(e)
		b.leave(types.UID(e))
	case fact.DaemonSet:
		b.onDaemonSet(e)
	case fact.DaemonSetGone:
		delete(b.sets, types.UID(e))
		b.rows.Step(e)
	case fact.Pod:
		b.rows.Step(b.as(e))
		if s := b.sets[e.Owner]; s != nil && s.info != nil && b.hears(s, &e) {
			b.tell(s)
		}
	case fact.PodGone:
		delete(b.strays, types.UID(e))
		b.rows.Step(e)
		for _, s := range b.sets {
			if _, is := s.first[types.UID(e)]; is {
				delete(s.first, types.UID(e))
				b.tell(s)
			}
		}
	default:
		b.rows.Step(e)
	}
}

// Tick says what time it is.
func (b *Book) Tick(now time.Time) {
	b.now = now
	for _, s := range b.sets {
		b.settle(s)
		if s.told == nil {
			continue
		}
		at, kept := s.next(), b.keep(s)
		if !at.IsZero() && !at.After(now) || len(s.told.Templates) > len(kept) {
			b.tell(s)
		}
	}
}

// NextTick returns when time alone has another node be first, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	for _, s := range b.sets {
		if t := s.next(); !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}

// next is when the first of those that are waited for has had its time; zero if none is.
func (s *set) next() (at time.Time) {
	soonest := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if s.info == nil || s.pinned() {
		return at
	}
	if !s.begun.IsZero() {
		soonest(s.begun.Add(onItsWay))
	}
	for _, since := range s.first {
		soonest(since.Add(Patience))
	}
	return at
}

// Begun says that a pod of the DaemonSet was asked for.
func (b *Book) Begun(uid types.UID, revision string) {
	if s := b.sets[uid]; s != nil && s.info != nil && content.TemplateOf(revision) == s.template() && !s.pinned() {
		s.begun = b.now
		b.tell(s)
	}
}

func (b *Book) onRollout(e fact.Rollout) {
	uid := e.UID
	s := b.sets[uid]
	switch {
	case e.Policy == nil: // one that cannot be read changes nothing
	case !e.Policy.PinsImages:
		b.leave(uid)
	case s == nil:
		s = &set{found: map[string]v1alpha1.PinnedTemplate{}, first: map[types.UID]time.Time{}}
		b.sets[uid] = s
	}
	if s != nil && e.Status != nil {
		s.stored = []string{e.Status.StableRevision, e.Status.TargetRevision}
	}
	if s != nil && e.Status != nil && e.Status.Images != nil {
		for _, t := range e.Status.Images.Templates {
			if _, known := s.found[t.Template]; !known {
				s.found[t.Template] = t
			}
		}
	}
	b.rows.Step(e)
}

// leave has the images of a DaemonSet be as written.
func (b *Book) leave(uid types.UID) {
	s := b.sets[uid]
	delete(b.sets, uid)
	b.takeBack(uid)
	if s != nil && s.info != nil {
		b.rows.Step(*s.info)
	}
}

func (b *Book) onDaemonSet(e fact.DaemonSet) {
	s := b.sets[e.UID]
	if s == nil {
		b.rows.Step(e)
		return
	}
	another := s.info == nil || content.TemplateOf(s.info.Revision) != content.TemplateOf(e.Revision)
	s.info = &e
	if another {
		b.look(s)
	}
	b.tell(s)
	b.settle(s)
}

func (s *set) template() string { return content.TemplateOf(s.info.Revision) }

func (s *set) pinned() bool { _, is := s.found[s.template()]; return is }

// look finds out what the pods tell of a template that is new here.
func (b *Book) look(s *set) {
	s.first, s.begun = map[types.UID]time.Time{}, time.Time{}
	if s.pinned() {
		return
	}
	var all []*corev1.Pod
	for _, uid := range b.rows.Pods() {
		if p, _ := b.rows.Pod(uid); p.Owner == s.info.UID && content.TemplateOf(p.Revision) == s.template() {
			if o := b.Objects.Pod(uid); o != nil {
				all = append(all, o)
			}
		}
	}
	slices.SortFunc(all, func(a, c *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(c.CreationTimestamp.Time), cmp.Compare(a.Name, c.Name))
	})
	for _, made := range []bool{true, false} {
		for _, p := range all {
			if b.learn(s, p, made) {
				return
			}
		}
	}
	for _, p := range all {
		if info, known := b.rows.Pod(p.UID); known {
			b.hears(s, &info)
		}
	}
}

// learn takes in what a pod knows of all images, one that was made with digests or any.
func (b *Book) learn(s *set, p *corev1.Pod, byDigest bool) bool {
	template := b.spec(s)
	if template == nil {
		return false
	}
	images, whole, made := pinning.Read(template, p)
	if !whole || byDigest && !made {
		return false
	}
	now := metav1.NewTime(b.now.Truncate(time.Second))
	s.found[s.template()] = v1alpha1.PinnedTemplate{
		Template: s.template(), Node: p.Spec.NodeName, Since: &now, Images: images,
	}
	s.first, s.begun = map[types.UID]time.Time{}, time.Time{}
	return true
}

// spec is the template that is acted on; nil while that is another than the matrix was told of.
func (b *Book) spec(s *set) *corev1.PodSpec {
	ds, _ := b.Objects.Acted(s.info.UID)
	if ds == nil || ds.Generation != s.info.Generation {
		return nil
	}
	return &ds.Spec.Template.Spec
}

// hears takes a pod in; true if that changes anything.
func (b *Book) hears(s *set, p *fact.Pod) bool {
	if content.TemplateOf(p.Revision) != s.template() || s.pinned() {
		return false
	}
	o := b.Objects.Pod(p.UID)
	if o != nil && !p.Terminating && b.learn(s, o, false) {
		return true
	}
	_, had := s.first[p.UID]
	awaited := !s.begun.IsZero()
	can := b.mayTell(s, p, o)
	switch {
	case can && !had:
		s.first[p.UID], s.begun = Since(p, o), time.Time{}
	case !can && had:
		delete(s.first, p.UID)
	case !can:
		s.begun = time.Time{}
	}
	return can != had || !can && awaited
}

// mayTell reports whether a pod may come to know all images of the template.
func (b *Book) mayTell(s *set, p *fact.Pod, o *corev1.Pod) bool { return MayTell(b.spec(s), p, o) }

// MayTell reports whether a pod may come to know all images of its template, as far as the template and the pod's
// object are known. One behind the gate is not asked to yet.
func MayTell(template *corev1.PodSpec, p *fact.Pod, o *corev1.Pod) bool {
	switch {
	case p.Terminating, p.Unplaceable != "", p.Certain, p.Phase == fact.PodFailed:
		return false
	case o == nil:
		return true
	}
	return !pinning.IsGated(o) && (template == nil || pinning.Tells(template, o))
}

// Since is from when on a pod may ask the registry.
func Since(p *fact.Pod, o *corev1.Pod) time.Time {
	if o != nil {
		if at, was := pinning.LetThrough(o); was {
			return at
		}
	}
	return p.Created
}

// waits reports whether some pod may still tell.
func (b *Book) waits(s *set) bool {
	if !s.begun.IsZero() && s.begun.Add(onItsWay).After(b.now) {
		return true
	}
	s.begun = time.Time{}
	for uid, since := range s.first {
		if since.Add(Patience).After(b.now) {
			return true
		}
		delete(s.first, uid)
	}
	return false
}

// tell tells the matrix of the DaemonSet, and whether a node may be first.
func (b *Book) tell(s *set) {
	info := *s.info
	template := b.spec(s)
	said := v1alpha1.ImagesStatus{}
	switch {
	case template == nil && !s.pinned():
		info.Held = true // until the template is known
	case s.pinned(), len(pinning.Tags(template)) == 0:
		said.Message = unpinned(s.found[s.template()])
	case b.waits(s):
		info.First, said.Message = fact.FirstPulls, "all others wait for the digests that the first node gets"
	default:
		info.First, said.Message = fact.FirstIsWanted, "the first node is to find out their digests"
	}
	said.Templates = b.keep(s)
	if s.told == nil || !apiequality.Semantic.DeepEqual(s.told, &said) {
		s.told = &said
	}
	info.Images = s.told
	b.rows.Step(info)
}

// unpinned names the images that are taken as written; "" if none is.
func unpinned(t v1alpha1.PinnedTemplate) string {
	var names []string
	for _, i := range t.Images {
		if i.Digest == "" {
			names = append(names, i.Image)
		}
	}
	if len(names) == 0 {
		return ""
	}
	const why = "%s is taken as written: %s knows no digest of its repository"
	return fmt.Sprintf(why, strings.Join(names, ", "), t.Node)
}

// keep forgets the templates that nobody goes to or back to, and returns the others: the stable one first.
func (b *Book) keep(s *set) (out []v1alpha1.PinnedTemplate) {
	st, known := b.rows.Rollout(s.info.UID)
	kept, revisions := map[string]bool{}, []string{st.StableRevision, st.TargetRevision}
	if !known {
		revisions = slices.Clone(s.stored)
	}
	for _, of := range append(revisions, s.info.Revision) {
		hash := content.TemplateOf(of)
		if t, is := s.found[hash]; is && !kept[hash] {
			out = append(out, t)
		}
		kept[hash] = true
	}
	if known {
		maps.DeleteFunc(s.found, func(hash string, _ v1alpha1.PinnedTemplate) bool { return !kept[hash] })
	}
	return out
}

// Images returns the digests for pods of a revision. First tells that its pod is to ask the registry.
func (b *Book) Images(uid types.UID, revision string) (images []v1alpha1.PinnedImage, first bool) {
	s := b.sets[uid]
	if s == nil || s.info == nil {
		return nil, false
	}
	hash := content.TemplateOf(revision)
	t, known := s.found[hash]
	return t.Images, !known && hash == s.template()
}
