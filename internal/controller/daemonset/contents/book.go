package contents

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Rows is the matrix, as far as a Book tells and asks it.
type Rows interface {
	Step(e matrix.Event)
	Pod(uid types.UID) (fact.Pod, bool)
	Pods() []types.UID
	PodsOfRevision(uid types.UID, revision string) int
	Makes(uid types.UID) []string
	Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool)
	MayFetch(uid types.UID, node string) (atOnce int, patience time.Duration, ok bool)
}

// Book knows the content of all DaemonSets.
type Book struct {
	// Live tells that the API server lets nobody but the controller say what a running pod's volumes show, and
	// that agents can read it then.
	Live bool
	// Guest tells that another controller makes the pods.
	Guest bool
	// Linger is how long a copy stays that nobody needs: a pod that refers to it may still be on its way.
	Linger time.Duration

	rows   Rows
	now    time.Time
	sets   map[types.UID]*set
	spaces map[string]*space
	// stored are the DaemonSets of rollouts that speak of content, as they are stored.
	stored map[types.NamespacedName]types.UID
	// marked are the pods that say which content they have.
	marked map[types.UID]mark
	// counts are how many those are, by DaemonSet and revision.
	counts map[types.UID]map[string]int
	// dirty are to be settled, planned to be looked at for what is to be written.
	dirty, planned map[types.UID]bool
	due            map[types.UID]time.Time
	news           []News
	// moved tells that other namespaces may have to be read since Follow was asked; followed is what it said.
	moved    bool
	followed map[string]map[content.Kind]bool
}

// News is for people: an event of a DaemonSet.
type News struct {
	DaemonSet       *appsv1.DaemonSet
	Warning         bool
	Reason, Message string
}

// News returns what is new, once.
func (b *Book) News() []News {
	news := b.news
	b.news = nil
	return news
}

// mark is the DaemonSet of a pod, and the pod's revision.
type mark struct {
	owner    types.UID
	revision string
}

// set is what is known of one DaemonSet.
type set struct {
	object  *appsv1.DaemonSet
	info    *fact.DaemonSet // as it was told, nil before that
	rollout *fact.Rollout   // nil without a policy
	// rules is nil where content is no part of a revision. unsure: no policy could be read yet, and the rollout, as it was
	// stored, speaks of content, or is not known either; sure: one could.
	rules        *rolloutpolicy.Content
	unsure, sure bool
	// told is what rows were told of the DaemonSet, why what hinders its content.
	told *fact.DaemonSet
	why  string
	// left is why copies stay that nobody needs.
	left string
	// renamed is what the revision that was told was called by other rules.
	renamed string
	live    ways
	// naming is how the revisions of its pods are called.
	naming naming
	// refs are what the template of refsOf names.
	refs   []content.Ref
	refsOf *corev1.PodTemplateSpec
	sums   map[hashed]sum
	// lost are copies that somebody deleted, for as long as they are wanted.
	lost map[content.Ref]*object
	last map[content.Ref]last
	// known are the contents whose manifest was seen, or that were worked out here.
	known map[string]*known
	// latest is the ID of what the objects hold now, changed when that became so, restless since when they
	// have changed again and again.
	latest            string
	changed, restless time.Time
	// first is the ID of what they held when content was turned on.
	first string
	job   jobState
	// unwanted is since when nobody needs a content or a copy. unlisted is since when a content is needed of which there
	// is no list, and which it is.
	unwanted map[content.Ref]time.Time
	unlisted struct {
		id    string
		since time.Time
	}
}

// known is a content of one DaemonSet.
type known struct {
	content.Content
	manifest *corev1.ConfigMap // nil while there is none
	spoiled  bool              // it does not fit its copies
}

// hashed is an object, and the name under which it is content: an author's may have the name of a copy.
type hashed struct{ object, as content.Ref }

// sum is that of one version of an object.
type sum struct {
	of    *content.Object
	keyed string
	value []byte
	err   error
}

// space is what is known of the objects of one namespace.
type space struct {
	objects map[content.Ref]*object
	sight   map[content.Kind]sight
	// key is that of the namespace's hashes, made at keyed.
	key   []byte
	keyed time.Time
}

// object is one ConfigMap or Secret.
type object struct {
	content.Object
	meta metav1.Object
	raw  any // *corev1.ConfigMap or *corev1.Secret
}

// sight is whether a kind can be read in a namespace.
type sight struct {
	read bool
	why  string
}

// New returns an empty book.
func New(rows Rows) *Book {
	return &Book{
		Linger: linger, rows: rows, sets: map[types.UID]*set{}, spaces: map[string]*space{}, marked: map[types.UID]mark{},
		stored: map[types.NamespacedName]types.UID{}, counts: map[types.UID]map[string]int{},
		dirty: map[types.UID]bool{}, planned: map[types.UID]bool{}, due: map[types.UID]time.Time{},
	}
}

// Event is what a Book is told beside what goes through it.
type Event interface{ event() }

// DaemonSet is a DaemonSet as it is now, or gone.
type DaemonSet struct {
	Object *appsv1.DaemonSet
	Gone   bool
}

// Object is a *corev1.ConfigMap or a *corev1.Secret as it is now, or gone.
type Object struct {
	Object metav1.Object
	Gone   bool
}

// Sight says whether a kind can be read in a namespace: Read that it has been, Why that it cannot be. Over
// says that nobody reads it any more.
type Sight struct {
	Namespace string
	Kind      content.Kind
	Read      bool
	Why       string
	Over      bool
}

// Stored is a rollout as it is stored, or gone, and the DaemonSet that it is of.
type Stored struct {
	Rollout *v1alpha1.DaemonSetRollout
	Owner   types.UID
	Gone    bool
}

// Now says what time it is.
type Now struct{ time.Time }

func (DaemonSet) event() {}
func (Object) event()    {}
func (Sight) event()     {}
func (Stored) event()    {}
func (Now) event()       {}
func (Result) event()    {}

// Tell takes an event in.
func (b *Book) Tell(e Event) {
	switch e := e.(type) {
	case DaemonSet:
		b.onDaemonSet(e)
	case Object:
		b.onObject(e)
	case Sight:
		b.onSight(e)
	case Stored:
		b.onStored(e)
	case Now:
		b.now = e.Time
	case Result:
		b.onResult(e)
	}
}

func (b *Book) set(uid types.UID) *set {
	s := b.sets[uid]
	if s == nil {
		s = &set{
			sums: map[hashed]sum{}, lost: map[content.Ref]*object{}, last: map[content.Ref]last{},
			known:    map[string]*known{},
			unwanted: map[content.Ref]time.Time{},
		}
		b.sets[uid] = s
	}
	return s
}

func (b *Book) onDaemonSet(e DaemonSet) {
	uid := e.Object.UID
	if e.Gone {
		b.moved = true
		delete(b.sets, uid)
		delete(b.dirty, uid)
		delete(b.planned, uid)
		delete(b.due, uid)
		return
	}
	s := b.set(uid)
	first := s.object == nil
	b.moved = b.moved || first
	s.object = e.Object
	if first {
		for _, o := range b.space(e.Object.Namespace).objects {
			b.learn(s, o)
		}
	}
}

// onStored keeps whether there may be copies that neither a policy nor a revision or a pod tells of: a controller that
// starts would look for none.
func (b *Book) onStored(e Stored) {
	name := types.NamespacedName{Namespace: e.Rollout.Namespace, Name: e.Rollout.Name}
	was := b.stored[name]
	delete(b.stored, name)
	if e.Rollout.Status.Content != nil && !e.Gone {
		b.stored[name] = e.Owner
	}
	if s := b.sets[e.Owner]; e.Gone && s != nil {
		b.abandon(s)
	}
	if b.stored[name] != was {
		b.moved, b.dirty[e.Owner] = true, true
	}
}

// speaks reports whether the rollout of a DaemonSet that is stored speaks of content. So there may be copies; before
// that none is made.
func (b *Book) speaks(s *set) bool {
	return s.object != nil &&
		b.stored[types.NamespacedName{Namespace: s.object.Namespace, Name: s.object.Name}] == s.object.UID
}

func (b *Book) space(namespace string) *space {
	sp := b.spaces[namespace]
	if sp == nil {
		sp = &space{objects: map[content.Ref]*object{}, sight: map[content.Kind]sight{}}
		b.spaces[namespace] = sp
	}
	return sp
}

func (b *Book) onSight(e Sight) {
	sp := b.space(e.Namespace)
	if e.Over {
		delete(sp.sight, e.Kind)
		for ref := range sp.objects {
			if ref.Kind == e.Kind {
				delete(sp.objects, ref)
			}
		}
		if len(sp.sight) == 0 {
			delete(b.spaces, e.Namespace)
		}
		return
	}
	sp.sight[e.Kind] = sight{e.Read, e.Why}
	b.touch(e.Namespace)
}

// touch has all DaemonSets of a namespace be looked at.
func (b *Book) touch(namespace string) {
	for uid, s := range b.sets {
		if s.object != nil && s.object.Namespace == namespace && b.concerns(s) {
			b.dirty[uid] = true
		}
	}
}

// concerns reports whether content has to do with the DaemonSet.
func (b *Book) concerns(s *set) bool { return s.rules != nil || len(s.known) > 0 || b.speaks(s) }

// Keeps reports whether copies of content of a DaemonSet are there, or may be.
func (b *Book) Keeps(uid types.UID) bool {
	s := b.sets[uid]
	if s == nil || s.object == nil {
		return false
	}
	sp := b.spaces[s.object.Namespace]
	return len(s.known) > 0 || b.speaks(s) && (sp == nil || !sp.sight[content.ConfigMap].read)
}

func read(o metav1.Object) *object {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return &object{*content.OfConfigMap(o), o, o}
	case *corev1.Secret:
		return &object{*content.OfSecret(o), o, o}
	}
	return nil
}

func (b *Book) onObject(e Object) {
	o := read(e.Object)
	// What was on its way when the reading ended tells nothing of what is there once it is read again.
	if o == nil || !b.followed[e.Object.GetNamespace()][o.Kind] {
		return
	}
	sp := b.space(o.meta.GetNamespace())
	is := o.Labels[content.Label]
	have := sp.objects[o.Ref]
	if e.Gone {
		b.endsInJobs(o.meta)
	}
	switch {
	case e.Gone && (have == nil || have.meta.GetUID() != o.meta.GetUID()):
		return
	case e.Gone:
		delete(sp.objects, o.Ref)
	default:
		sp.objects[o.Ref] = o
	}
	if o.Ref == content.KeyRef {
		b.takeKey(sp, o, e.Gone)
	}
	b.tellSets(o, is != "", e.Gone)
}

// tellSets has the DaemonSets of an object's namespace take it in, or its end; ours: it is a copy, a manifest or a key.
func (b *Book) tellSets(o *object, ours, gone bool) {
	for uid, s := range b.sets {
		if s.object == nil || s.object.Namespace != o.meta.GetNamespace() {
			continue
		}
		if !gone {
			b.learn(s, o)
		} else {
			b.unlearn(s, o)
		}
		k, m := s.copied(o.Ref)
		if k != nil {
			b.keep(s, &k.Content, m, o, gone)
		}
		named := k != nil || s.lists(o.Ref)
		if named && gone {
			s.job.make.retryAt = time.Time{} // what stood in the way may be away now
		}
		if b.concerns(s) && (ours || slices.Contains(s.refs, o.Ref) || named) {
			b.dirty[uid] = true
		}
	}
}

// learn takes a manifest of the DaemonSet in. One that cannot be read is none.
func (b *Book) learn(s *set, o *object) {
	m, is := o.raw.(*corev1.ConfigMap)
	if !is || m.Labels[content.Label] != content.IsManifest || !s.owns(m) && !s.inherits(m) {
		return
	}
	c, err := content.ReadManifest(m.Data)
	if err != nil || m.Name != content.ManifestName(s.object.Name, c.ID) {
		return
	}
	if k := s.known[c.ID]; k != nil {
		k.manifest, k.spoiled = m, !k.Same(&c)
		return
	}
	s.known[c.ID] = &known{Content: c, manifest: m}
	b.dirty[s.object.UID] = true
}

// unlearn takes the end of a manifest in. One that never was what its copies are is forgotten with it.
func (b *Book) unlearn(s *set, o *object) {
	for id, k := range s.known {
		if k.manifest == nil || k.manifest.UID != o.meta.GetUID() {
			continue
		}
		k.manifest, k.spoiled = nil, false
		if !b.adds(s, k) {
			delete(s.known, id)
		}
	}
}

func (s *set) owns(o metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(o)
	return ref != nil && s.object != nil && ref.UID == s.object.UID
}

// inherits reports whether what stands for content is of a DaemonSet that had the name before, and is gone.
func (s *set) inherits(o metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(o)
	return ref == nil || ref.Kind == belongings.Kind.Kind && ref.Name == s.object.Name && ref.UID != s.object.UID
}

// Members returns the members of a content of the DaemonSet, and whether it is known.
func (b *Book) Members(uid types.UID, id string) ([]content.Member, bool) {
	if s := b.sets[uid]; s != nil && s.known[id] != nil {
		return s.known[id].Members, true
	}
	return nil, false
}

// Follow returns which kinds are to be read in which namespaces; false if that is what it was before.
func (b *Book) Follow() (map[string]map[content.Kind]bool, bool) {
	if !b.moved {
		return nil, false
	}
	b.moved = false
	out := map[string]map[content.Kind]bool{}
	for uid, s := range b.sets {
		secrets, any := b.reads(uid, s)
		if !any || s.object == nil {
			continue
		}
		kinds := out[s.object.Namespace]
		if kinds == nil {
			kinds = map[content.Kind]bool{content.ConfigMap: true}
			out[s.object.Namespace] = kinds
		}
		if secrets {
			kinds[content.Secret] = true
		}
	}
	b.followed = out
	return out, true
}

// reads says whether anything must be read for the DaemonSet, and whether Secrets too.
func (b *Book) reads(uid types.UID, s *set) (secrets, any bool) {
	if s.rules != nil {
		secrets, any = s.rules.Secrets, true
	}
	any = any || b.speaks(s)
	if st, known := b.rollout(uid); known {
		any = any || content.IDOf(st.StableRevision) != "" || content.IDOf(st.TargetRevision) != ""
	}
	for _, k := range s.known {
		any = true
		secrets = secrets || content.Keyed(k.Refs())
	}
	return secrets, any || len(b.counts[uid]) > 0
}
