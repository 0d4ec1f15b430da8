package pins

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Patience is how long a first pod may pull before another node is first too.
const Patience = 10 * time.Minute

// onItsWay is how long a pod that was asked for may not have been seen.
const onItsWay = time.Minute

// Objects are what the API holds.
type Objects interface {
	// Template is that of a revision without its content; nil if it cannot be read.
	Template(daemonSet types.UID, hash string) *corev1.PodTemplateSpec
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
	// infos are all DaemonSets: pinning may begin while nothing new is told of one.
	infos map[types.UID]*fact.DaemonSet
	// strays are pods of which the matrix was told another revision than they say.
	strays map[types.UID]fact.Pod
}

// set is a DaemonSet whose policy pins.
type set struct {
	info  *fact.DaemonSet
	found map[string]v1alpha1.PinnedTemplate // by the template's hash
	// unknown are those of which pods are made, and nobody has told yet.
	unknown map[string]*unknown
	told    *v1alpha1.ImagesStatus
	// templates are those that the matrix was told of.
	templates []string
	// blind: nobody can read its policy and its rollout. Digests are known from pods that were made with them, and no
	// pod is to ask for any.
	blind bool
	// settled tells that every node is to have the newest template, beside another controller.
	settled bool
	// stored is what the rollout went to, and back to, when it was stored: after a start all that is known at first.
	stored []string
}

// unknown is a template whose digests are not known yet.
type unknown struct {
	spec *corev1.PodSpec // nil while it cannot be read
	// first are the pods that may tell, and since when; begun is when the one was asked for that is not seen yet,
	// and asked its name.
	first map[types.UID]time.Time
	begun time.Time
	asked string
}

// New returns an empty book.
func New(of contents.Rows) *Book {
	return &Book{rows: of, sets: map[types.UID]*set{}, infos: map[types.UID]*fact.DaemonSet{},
		strays: map[types.UID]fact.Pod{}}
}

// Step takes an event for the matrix in, and passes it on.
func (b *Book) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.Rollout:
		b.onRollout(e)
	case fact.RolloutGone:
		b.rows.Step(e)
		b.leave(types.UID(e))
	case action.Answer:
		b.onAnswer(e)
		b.rows.Step(e)
	case contents.Again:
		b.again(types.UID(e))
	case fact.DaemonSet:
		b.onDaemonSet(e)
	case fact.DaemonSetGone:
		delete(b.sets, types.UID(e))
		delete(b.infos, types.UID(e))
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
			if s.lose(types.UID(e)) {
				b.tell(s)
			}
		}
	default:
		b.rows.Step(e)
	}
}

// lose forgets a pod; true if it could have told something.
func (s *set) lose(pod types.UID) bool {
	for _, u := range s.unknown {
		if _, is := u.first[pod]; is {
			delete(u.first, pod)
			return true
		}
	}
	return false
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
		if !at.IsZero() && !at.After(now) || len(s.told.Templates) > len(kept) || b.goesElsewhere(s) {
			b.tell(s)
		}
	}
}

// NextTick returns when time alone has another node be first, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	for _, s := range b.sets {
		at = deadline.Sooner(at, s.next())
		if b.goesElsewhere(s) {
			at = deadline.Sooner(at, b.now)
		}
	}
	return at, !at.IsZero()
}

// goesElsewhere reports whether nodes are to have templates that the matrix was not told of.
func (b *Book) goesElsewhere(s *set) bool {
	return s.told != nil && !slices.Equal(s.templates, b.templates(s))
}

// next is when the first of those that are waited for has had its time; zero if none is.
func (s *set) next() (at time.Time) {
	for _, u := range s.unknown {
		if !u.begun.IsZero() {
			at = deadline.Sooner(at, u.begun.Add(onItsWay))
		}
		for _, since := range u.first {
			at = deadline.Sooner(at, since.Add(Patience))
		}
	}
	return at
}

func (b *Book) onRollout(e fact.Rollout) {
	s, begins := b.followed(&e)
	if s != nil && e.Status != nil {
		s.recall(e.Status)
	}
	b.rows.Step(e)
	if begins && s.info != nil {
		b.tell(s)
	}
}

// again has the matrix forget a rollout that it is told again, and remembers where that stood.
func (b *Book) again(uid types.UID) {
	if s := b.sets[uid]; s != nil && s.info != nil {
		s.stored = b.goesTo(s)
	}
	b.rows.Step(fact.RolloutGone(uid))
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
	b.infos[e.UID] = &e
	s := b.sets[e.UID]
	if s == nil {
		b.rows.Step(e)
		return
	}
	s.info = &e
	b.tell(s)
	b.settle(s)
}

func (s *set) template() string { return content.TemplateOf(s.info.Revision) }

// templates are those of which pods may be made, the newest first, each once.
func (b *Book) templates(s *set) (out []string) {
	for _, revision := range append([]string{s.info.Revision}, b.goesTo(s)...) {
		if hash := content.TemplateOf(revision); hash != "" && !slices.Contains(out, hash) {
			out = append(out, hash)
		}
	}
	return out
}

// goesTo are the revisions of which pods may be made: what nodes have before their turn first, then the target.
func (b *Book) goesTo(s *set) []string {
	if _, known := b.rows.Rollout(s.info.UID); !known && len(s.stored) > 0 {
		return s.stored
	}
	return b.rows.Makes(s.info.UID)
}

// search begins to look for the digests of templates that pods are made of now, and ends it for others.
func (b *Book) search(s *set, templates []string) {
	maps.DeleteFunc(s.unknown, func(hash string, _ *unknown) bool { return !slices.Contains(templates, hash) })
	for _, hash := range templates {
		if _, known := s.found[hash]; known {
			delete(s.unknown, hash)
			continue
		}
		u := s.unknown[hash]
		if u == nil {
			u = &unknown{first: map[types.UID]time.Time{}}
			s.unknown[hash] = u
		}
		if u.spec == nil {
			b.look(s, hash, u)
		}
	}
}

// look reads a template, and finds out what the pods tell of it.
func (b *Book) look(s *set, hash string, u *unknown) {
	u.spec = b.spec(s, hash)
	if u.spec == nil {
		return
	}
	var all []*corev1.Pod
	for _, uid := range b.rows.Pods() {
		if p, _ := b.rows.Pod(uid); p.Owner == s.info.UID && content.TemplateOf(p.Revision) == hash {
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
			if b.learn(s, hash, p, made) {
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
func (b *Book) learn(s *set, hash string, p *corev1.Pod, byDigest bool) bool {
	template := s.unknown[hash].spec
	if template == nil {
		return false
	}
	images, whole, made := pinning.Read(template, p)
	if !whole || (byDigest || s.blind) && !made {
		return false
	}
	now := metav1.NewTime(b.now.Truncate(time.Second))
	s.found[hash] = v1alpha1.PinnedTemplate{Template: hash, Node: p.Spec.NodeName, Since: &now, Images: images}
	delete(s.unknown, hash)
	return true
}

// spec is that of a template; nil while it cannot be read.
func (b *Book) spec(s *set, hash string) *corev1.PodSpec {
	template := b.Objects.Template(s.info.UID, hash)
	if template == nil {
		return nil
	}
	return &template.Spec
}

// hears takes a pod in; true if that changes anything.
func (b *Book) hears(s *set, p *fact.Pod) bool {
	hash := content.TemplateOf(p.Revision)
	u := s.unknown[hash]
	if u == nil {
		return false
	}
	o := b.Objects.Pod(p.UID)
	if o != nil && !p.Terminating && b.learn(s, hash, o, false) {
		return true
	}
	if s.blind {
		return false
	}
	_, had := u.first[p.UID]
	can, seen := MayTell(u.spec, p, o), u.sees(p)
	switch {
	case can && seen: // the API's clock may be another
		u.first[p.UID] = b.now
	case can && !had:
		u.first[p.UID] = deadline.Past(Since(p, o, b.now), b.now)
	case !can && had:
		delete(u.first, p.UID)
	}
	return can != had || !can && seen
}

// sees reports whether the pod is the one that was asked for last, and is seen now.
func (u *unknown) sees(p *fact.Pod) bool {
	if u.begun.IsZero() || p.Name != u.asked {
		return false
	}
	u.begun = time.Time{}
	return true
}

// MayTell reports whether a pod may come to know all images of its template, as far as the template and the pod's
// object are known. One behind the gate is not asked to yet.
func MayTell(template *corev1.PodSpec, p *fact.Pod, o *corev1.Pod) bool {
	switch {
	case p.Terminating, p.Unplaceable != "", p.Certain, p.Phase == fact.PodFailed:
		return false
	case o == nil:
		return true
	}
	return !pinning.IsGated(&o.Spec) && (template == nil || pinning.Tells(template, o))
}

// Since is from when on a pod may ask the registry. A mark that is further ahead than clocks are counts for nothing.
func Since(p *fact.Pod, o *corev1.Pod, now time.Time) time.Time {
	if o != nil {
		at, was := pinning.LetThrough(o)
		if was && !at.After(now.Add(Patience)) {
			return at
		}
	}
	return p.Created
}

// state is how many nodes may be given the template now.
func (u *unknown) state(now time.Time) fact.First {
	switch {
	case len(pinning.Tags(u.spec)) == 0:
		return fact.NoFirst
	case u.waits(now):
		return fact.FirstPulls
	}
	return fact.FirstIsWanted
}

// waits reports whether some pod may still tell.
func (u *unknown) waits(now time.Time) bool {
	if !u.begun.IsZero() && u.begun.Add(onItsWay).After(now) {
		return true
	}
	u.begun = time.Time{}
	for uid, since := range u.first {
		if since.Add(Patience).After(now) {
			return true
		}
		delete(u.first, uid)
	}
	return false
}

// tell tells the matrix of the DaemonSet, and whether a node may be first.
func (b *Book) tell(s *set) {
	s.templates = b.templates(s)
	b.search(s, s.templates)
	info, said := *s.info, v1alpha1.ImagesStatus{}
	said.Message = b.firsts(s, &info)
	said.Templates = b.keep(s)
	if s.told == nil || !apiequality.Semantic.DeepEqual(s.told, &said) {
		s.told = &said
	}
	if len(s.found) > 0 || !s.blind {
		info.Images = s.told
	}
	b.rows.Step(info)
}

// firsts says of which templates a node may be first now, or is, and what the rollout says of that.
func (b *Book) firsts(s *set, info *fact.DaemonSet) (message string) {
	for _, hash := range s.templates {
		newest, first := hash == s.template(), fact.NoFirst
		switch u := s.unknown[hash]; {
		case u == nil && newest:
			message = unpinned(b.spec(s, hash), s.found[hash])
		case u == nil, s.blind:
		case u.spec == nil:
			info.Held = info.Held || newest // until the template is known
		default:
			first = u.state(b.now)
		}
		info.First.Set(hash, first)
		switch {
		case first == fact.NoFirst || message != "":
		case newest && first == fact.FirstIsWanted:
			message = "the first node is to find out their digests"
		case newest:
			message = "all others wait for the digests that the first node gets"
		case first == fact.FirstPulls:
			message = "nodes before their turn wait for the digests that the first of them gets"
		}
	}
	return message
}

// keep forgets the templates that nobody goes to or back to, and returns the others: the stable one first.
func (b *Book) keep(s *set) (out []v1alpha1.PinnedTemplate) {
	kept := map[string]bool{}
	for _, of := range append(slices.Clone(b.goesTo(s)), s.info.Revision) {
		hash := content.TemplateOf(of)
		if t, is := s.found[hash]; is && !kept[hash] {
			out = append(out, t)
		}
		kept[hash] = true
	}
	if _, known := b.rows.Rollout(s.info.UID); known {
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
	return s.found[hash].Images, s.unknown[hash] != nil && !s.blind
}
