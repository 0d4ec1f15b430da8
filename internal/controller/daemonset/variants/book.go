package variants

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Objects are what the API holds.
type Objects interface {
	// Pod is nil if there is none.
	Pod(uid types.UID) *corev1.Pod
	// Template is the template of a DaemonSet with the hash; nil if it is gone.
	Template(uid types.UID, hash string) *corev1.PodTemplateSpec
}

// rows is the matrix.
type rows = contents.Rows

// Book knows all variants, and which DaemonSets they are of.
type Book struct {
	rows
	// Objects is set before the first event.
	Objects Objects
	// Tries tells that pods can be tried before nodes are changed.
	Tries bool
	// Guest tells that another controller makes the pods. Admission gives them their variants where a policy is followed.
	Guest bool
	now   time.Time
	all   map[types.UID]*v1alpha1.DaemonSetVariant
	nodes map[string]*variant.Node
	// nodesVersion counts the changes of nodes.
	nodesVersion int
	sets         map[types.UID]*set
	// stored are all ControllerRevisions that hold variants, version counts the changes of variants.
	stored  map[types.UID]*appsv1.ControllerRevision
	version int
	// wrong says what no server should have taken of a variant, or a newer program has written; unread says why variants
	// are not known.
	wrong  map[types.UID]error
	unread string
	// dirty are to be settled.
	dirty map[types.UID]bool
	// moved tells that what the variants' status says may be another.
	moved bool
	// looked is when statuses were last looked at. writing are the variants of which one is being written, again when to
	// try the rest.
	looked  time.Time
	writing map[types.UID]bool
	again   time.Time
}

// set is a DaemonSet.
type set struct {
	object *appsv1.DaemonSet
	info   *fact.DaemonSet // as it came, nil before that
	told   *fact.DaemonSet // as it was passed on
	// status is that of its rollout, as it was stored when that was told; followed tells that one was.
	status   *v1alpha1.DaemonSetRolloutStatus
	followed bool
	// newest are its variants as they are now; nil for none. why says what hinders that they are used.
	newest  *variant.Set
	why     string
	version int // of which newest was worked out
	// refused says why its variants cannot be used as they are now: newest are the last that could. None were if
	// not settled.
	refused string
	settled bool
	// unfound: it was told while nobody knew which variants it had, so that its name then is no revision of it.
	unfound bool
	// known are all that may be needed, by ID.
	known map[string]*known
	// pods are its pods by node, for a DaemonSet that has variants or pods by variants.
	pods map[string]map[types.UID]bool
	// names are the revisions that its pods were passed on with.
	names map[string]bool
	// called is what pods are called whose content is no part of that, where they were passed on with it.
	called map[types.UID]string
	molds  map[string]*variant.Molds
	// seen is what the rollout aimed at when pods were last looked at.
	seen   aim
	job    try
	trials *trials // of the newest; nil for none
	// given is the revision that nodes may have had last.
	given string
	// objects says what the API has against the newest.
	objects string
	counts  map[string]*count // by the name of a variant
}

// known are variants that were worked out here or are stored.
type known struct {
	*variant.Set
	stored *appsv1.ControllerRevision // nil while they are not
	// unwanted is since when nobody needs them; zero while somebody does.
	unwanted time.Time
}

// try is what was tried of storing.
type try struct {
	busy     bool
	failures int
	again    time.Time
}

// New returns a book that knows of none.
func New(of contents.Rows) *Book {
	return &Book{rows: of, all: map[types.UID]*v1alpha1.DaemonSetVariant{}, nodes: map[string]*variant.Node{},
		sets: map[types.UID]*set{}, stored: map[types.UID]*appsv1.ControllerRevision{}, dirty: map[types.UID]bool{},
		writing: map[types.UID]bool{}, wrong: map[types.UID]error{},
		version: 1}
}

func (b *Book) set(uid types.UID) *set {
	s := b.sets[uid]
	if s == nil {
		s = &set{known: map[string]*known{}}
		b.sets[uid] = s
	}
	return s
}

// concerned reports whether variants have to do with the DaemonSet.
func (s *set) concerned() bool { return s.newest != nil || s.pods != nil || len(s.known) > 0 }

// TellVariant takes in a DaemonSetVariant as it is now, or that it is gone.
func (b *Book) TellVariant(v *v1alpha1.DaemonSetVariant, gone bool) {
	was := b.all[v.UID]
	if gone {
		delete(b.all, v.UID)
	} else {
		b.all[v.UID] = v
	}
	b.moved = true
	if was != nil && !gone && was.Generation == v.Generation && was.DeletionTimestamp == v.DeletionTimestamp &&
		newer.Fields(was) == newer.Fields(v) {
		return // its status
	}
	delete(b.wrong, v.UID)
	if !gone {
		b.wrong[v.UID] = variant.Check(v)
	}
	b.version++
	for uid, s := range b.sets {
		if s.object != nil && s.object.Namespace == v.Namespace {
			b.dirty[uid] = true
		}
	}
}

// TellDaemonSet takes in a DaemonSet as it is now, or that it is gone.
func (b *Book) TellDaemonSet(ds *appsv1.DaemonSet, gone bool) {
	if gone {
		delete(b.sets, ds.UID)
		delete(b.dirty, ds.UID)
		b.moved = true
		return
	}
	s := b.set(ds.UID)
	was := s.object
	s.object = ds
	if was != nil && maps.Equal(was.Labels, ds.Labels) && was.DeletionTimestamp == ds.DeletionTimestamp {
		return
	}
	s.version, b.dirty[ds.UID] = 0, true
	for _, r := range b.stored {
		b.learn(s, r)
	}
}

// TellNode takes in how a node is now, or that it is gone. The pods of a node that is another now are looked at.
func (b *Book) TellNode(n *corev1.Node, gone bool) {
	b.nodesVersion++
	if gone {
		delete(b.nodes, n.Name)
	} else {
		is := variant.OfNode(n)
		b.nodes[n.Name] = &is
	}
	for uid, s := range b.sets {
		if s.pods != nil {
			b.look(uid, s, n.Name)
		}
	}
}

// Tick says what time it is.
func (b *Book) Tick(now time.Time) {
	b.now = now
	if !b.again.IsZero() && !b.again.After(now) {
		b.again, b.moved = time.Time{}, true
	}
}

// NextTick returns when there is something to do by time alone, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	at, ok = b.again, !b.again.IsZero()
	for _, s := range b.sets {
		for _, t := range s.times() {
			if t.After(b.now) && (!ok || t.Before(at)) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// Settle works out what has changed. It is called when all is told, before the matrix is asked what to do.
func (b *Book) Settle() {
	for uid := range b.dirty {
		if s := b.sets[uid]; s != nil && s.object != nil {
			b.settle(uid, s)
		}
	}
	clear(b.dirty)
	for uid, s := range b.sets {
		// What a look changes may change what the rollout aims at, once.
		for range 3 {
			if s.pods == nil || !b.aimMoved(uid, s) {
				break
			}
			b.lookAll(uid, s)
		}
	}
}

// Outcome is what the pod of a revision is to be like on a node. Of a revision without variants it is nil. The error
// says that it is not known.
func (b *Book) Outcome(uid types.UID, revision, node string) (*variant.Outcome, error) {
	id := variantsOf(revision)
	if id == "" {
		return nil, nil
	}
	s, n := b.sets[uid], b.nodes[node]
	if s == nil || n == nil {
		return nil, fmt.Errorf("node %s is not known yet", node)
	}
	m := b.moldsOf(uid, s, revision)
	if m == nil {
		return nil, fmt.Errorf("the variants of revision %s are gone", revision)
	}
	o := m.Of(n)
	return &o, nil
}
