package pod

import (
	"context"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/internal/storage/provided"
)

// twoViews has one node: as it is in memory and as it is in the database; nil where there is none.
type twoViews struct {
	storage.Interface
	memory, database *corev1.Node
	reads            int // of the database
}

func (v *twoViews) Get(_ context.Context, key string, o storage.GetOptions, out runtime.Object) error {
	from := v.memory
	if o.ResourceVersion == "" {
		from = v.database
		v.reads++
	}
	if from == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	*out.(*corev1.Node) = *from
	return nil
}

func (v *twoViews) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

type changedKey string

func (k changedKey) Error() string   { return string(k) + " has changed" }
func (k changedKey) Changed() string { return string(k) }

// commit writes as the database does: only while it has the version of the node that the write depends on.
func (v *twoViews) commit(ctx context.Context) error {
	key, version, depends := provided.Of(ctx)
	have := ""
	if v.database != nil {
		have = v.database.ResourceVersion
	}
	if depends && strconv.FormatUint(version, 10) != have {
		return changedKey(key)
	}
	return nil
}

func nodeOf(uid types.UID, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, ResourceVersion: version}}
}

// A pod is written only while the very node is there that its binding names, whatever this server has heard of it; that
// costs a read of the database only where memory was too old.
func TestBindingsAreForTheVeryNode(t *testing.T) {
	for name, c := range map[string]struct {
		memory, database *corev1.Node
		uid              types.UID
		fresh            bool
		says             string
		reads            int
	}{
		"as it was":                         {nodeOf("u", "5"), nodeOf("u", "5"), "u", false, "", 0},
		"asked to be sure":                  {nodeOf("u", "5"), nodeOf("u", "5"), "u", true, "", 1},
		"written since":                     {nodeOf("u", "5"), nodeOf("u", "6"), "u", false, "", 1},
		"memory has not heard of the node":  {nil, nodeOf("u", "6"), "u", false, "", 1},
		"memory has the one before":         {nodeOf("old", "5"), nodeOf("u", "6"), "u", false, "", 1},
		"another one by now":                {nodeOf("new", "6"), nodeOf("new", "6"), "u", false, `node "n" is another one than that which the binding names: its UID is new, not u`, 1},
		"another one, unheard of":           {nodeOf("u", "5"), nodeOf("new", "6"), "u", false, "its UID is new, not u", 1},
		"gone":                              {nil, nil, "u", false, `node "n" with the UID u, which the binding names, does not exist`, 1},
		"gone, unheard of":                  {nodeOf("u", "5"), nil, "u", false, "does not exist", 1},
		"another one, and nobody names one": {nodeOf("u", "5"), nodeOf("new", "6"), "", false, "", 0},
		"gone, and nobody names one":        {nil, nil, "", true, "", 0},
	} {
		v := &twoViews{memory: c.memory, database: c.database}
		var targets Targets
		targets.Follow(v, func(_ context.Context, name string) (string, error) { return "/nodes/" + name, nil })
		written := false
		err := targets.while(t.Context(), &corev1.ObjectReference{Name: "n", UID: c.uid}, c.fresh,
			func(ctx context.Context, isThere func() error) error {
				err := isThere()
				if err == nil {
					err = v.commit(ctx)
					written = err == nil
				}
				return err
			})
		if written != (c.says == "") || (err == nil) != written || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: written %v, %v, want %q", name, written, err, c.says)
		}
		if v.reads != c.reads {
			t.Errorf("%s: the database is read %d times, want %d", name, v.reads, c.reads)
		}
	}
}

// A node that is written again in each moment does not hold up its server for ever.
func TestNodeThatNeverRests(t *testing.T) {
	v := &twoViews{memory: nodeOf("u", "1"), database: nodeOf("u", "1")}
	var targets Targets
	targets.Follow(v, func(context.Context, string) (string, error) { return "/nodes/n", nil })
	version, tries := 1, 0
	err := targets.while(t.Context(), &corev1.ObjectReference{Name: "n", UID: "u"}, false,
		func(ctx context.Context, isThere func() error) error {
			if err := isThere(); err != nil {
				return err
			}
			tries++
			version++
			v.database = nodeOf("u", strconv.Itoa(version))
			return v.commit(ctx)
		})
	if err == nil || hasChanged(err) || tries != writesForTarget {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

// births has pods created with a node that is known by a UID.
type births struct {
	*twoViews
	stored  []string
	refused int
}

func (b *births) Create(ctx context.Context, _ string, obj, _ runtime.Object, _ uint64) error {
	if err := b.commit(ctx); err != nil {
		return err
	}
	b.stored = append(b.stored, "on "+obj.(*corev1.Pod).Spec.NodeName)
	return nil
}

func (b *births) Place(context.Context, *corev1.Pod) *corev1.Binding {
	return &corev1.Binding{Target: corev1.ObjectReference{Name: "n", UID: "u"}}
}

func (b *births) Refuse(context.Context, *corev1.Pod, error) { b.refused++ }

// A pod that comes with its node comes without one where that is another one by now, and is stored once.
func TestPodsComeWithTheVeryNode(t *testing.T) {
	for name, c := range map[string]struct {
		memory, database *corev1.Node
		stored           string
		refused          int
	}{
		"as it was":            {nodeOf("u", "5"), nodeOf("u", "5"), "on n", 0},
		"written since":        {nodeOf("u", "5"), nodeOf("u", "6"), "on n", 0},
		"another one by now":   {nodeOf("new", "6"), nodeOf("new", "6"), "on ", 1},
		"another, unheard of":  {nodeOf("u", "5"), nodeOf("new", "6"), "on ", 1},
		"gone, and unheard of": {nodeOf("u", "5"), nil, "on ", 1},
	} {
		b := &births{twoViews: &twoViews{memory: c.memory, database: c.database}}
		var targets Targets
		targets.Follow(b, func(context.Context, string) (string, error) { return "/nodes/n", nil })
		err := Placing(b, &targets).Create(PlacedBy(t.Context(), b), "/pods/p", &corev1.Pod{}, &corev1.Pod{}, 0)
		if err != nil || len(b.stored) != 1 || b.stored[0] != c.stored || b.refused != c.refused {
			t.Errorf("%s: stored %q, refused %d times, %v; want %q, %d", name, b.stored, b.refused, err, c.stored, c.refused)
		}
	}
}
