package mold

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/startups"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// Maker makes molds of what the books of the controller know, and keeps those that are used again and again.
type Maker struct {
	Revisions *belongings.Book
	Contents  *contents.Book
	Pins      *pins.Book
	Startups  *startups.Book
	Variants  *variants.Book
	// Follows reports whether the changes of a DaemonSet follow a policy.
	Follows func(types.UID) bool
	molds   map[types.UID]*Mold
	// olds are the molds of older revisions, by DaemonSet and hash.
	olds map[types.UID]map[string]*Mold
}

// NewMaker returns a maker with these books.
func NewMaker(of Maker) *Maker {
	of.molds, of.olds = map[types.UID]*Mold{}, map[types.UID]map[string]*Mold{}
	return &of
}

// Forget drops what is kept of a DaemonSet.
func (k *Maker) Forget(ds types.UID) {
	delete(k.molds, ds)
	delete(k.olds, ds)
}

// Of returns what pods of a revision are made from, once for each generation or
// older revision.
func (k *Maker) Of(ds *appsv1.DaemonSet, hash string) (*Mold, error) {
	hash = content.WithVariants(hash, "")
	is, starts := k.imagesOf(ds.UID, hash), k.Startups.Turn(ds.Namespace, ds.Name, "")
	revision, current := k.Revisions.Revision(ds.UID, content.TemplateOf(hash))
	if !k.Follows(ds.UID) || current {
		m := k.molds[ds.UID]
		if m == nil || m.generation != ds.Generation || m.content != content.IDOf(hash) || !m.images.same(&is) ||
			m.starts != starts {
			m = New(ds)
			m.fillImages(is)
			m.startIn(starts)
			if err := k.fill(ds, m, hash); err != nil {
				return nil, err
			}
			k.molds[ds.UID] = m
		}
		return m, nil
	}
	if m := k.olds[ds.UID][hash]; m != nil && m.images.same(&is) && m.starts == starts {
		return m, nil
	}
	if revision == nil {
		return nil, fmt.Errorf("the ControllerRevision with hash %s is gone", content.TemplateOf(hash))
	}
	template, err := history.Template(revision)
	if err != nil {
		return nil, err
	}
	// Of the older ones a rollout needs one at a time.
	m := from(ds, template)
	m.fillImages(is)
	m.startIn(starts)
	if err := k.fill(ds, m, hash); err != nil {
		return nil, err
	}
	k.olds[ds.UID] = map[string]*Mold{hash: m}
	return m, nil
}

func (k *Maker) imagesOf(uid types.UID, revision string) (is images) {
	is.pinned, is.first = k.Pins.Images(uid, revision)
	return is
}

// fill has a mold refer to the content of the revision.
func (k *Maker) fill(ds *appsv1.DaemonSet, m *Mold, revision string) error {
	m.content = content.IDOf(revision)
	if m.content == "" {
		return nil
	}
	members, known := k.Contents.Members(ds.UID, m.content)
	if !known {
		return fmt.Errorf("the content of revision %s is gone", revision)
	}
	content.Rewrite(&m.spec, members)
	m.meta.Labels[content.RevisionLabel] = revision
	return nil
}

// Templates are those of DaemonSets, by their hash.
type Templates struct{ *belongings.Book }

// Template is nil if it is gone.
func (t Templates) Template(uid types.UID, hash string) *corev1.PodTemplateSpec {
	revision, current := t.Revision(uid, hash)
	if ds, _ := t.Acted(uid); current && ds != nil {
		return &ds.Spec.Template
	}
	if revision == nil {
		return nil
	}
	template, err := history.Template(revision)
	if err != nil {
		return nil // who makes pods of it says so
	}
	return template
}

// Source is what the API holds of DaemonSets, and what their pods are made from.
type Source struct {
	Templates
	*Maker
}

// Spec is that of the pod of a revision on a node, as its variant says. Where no pod can be made by that, it is as the
// template says.
func (k *Maker) Spec(uid types.UID, revision, node string) (*corev1.PodSpec, error) {
	ds, _ := k.Revisions.Acted(uid)
	if ds == nil {
		return nil, errors.New("the DaemonSet is gone")
	}
	m, err := k.For(ds, &action.CreatePod{Target: action.Target{UID: uid}, Revision: revision, Node: node})
	if Refusal(err) != "" {
		m, err = k.Of(ds, revision)
	}
	if err != nil {
		return nil, err
	}
	return m.Spec(), nil
}

// errVariant is why the pod of a node cannot be made of its variant.
type errVariant struct{ error }

// Refusal is what keeps the pods of a revision from being made, for as long as it is as it is; "" for what may end.
func Refusal(err error) string {
	if v := (errVariant{}); errors.As(err, &v) {
		return v.Error()
	}
	return ""
}

// For is what the pod of an action is made from: the mold of its revision, or what its node's variant makes of it.
func (k *Maker) For(ds *appsv1.DaemonSet, a *action.CreatePod) (*Mold, error) {
	if why := k.Contents.Unsound(a.UID, a.Revision); why != "" {
		return nil, errors.New(why)
	}
	outcome, err := k.Variants.Outcome(a.UID, a.Revision, a.Node)
	switch {
	case err != nil:
		return nil, err
	case outcome != nil && outcome.Err != nil:
		return nil, errVariant{outcome.Err}
	}
	plain, turn := content.WithVariants(a.Revision, ""), k.Startups.Turn(ds.Namespace, ds.Name, a.Node)
	if outcome == nil || outcome.Plain {
		m, err := k.Of(ds, plain)
		if err != nil {
			return nil, err
		}
		return m.startingIn(turn), nil
	}
	_, current := k.Revisions.Revision(ds.UID, content.TemplateOf(plain))
	m := from(ds, outcome.Template.DeepCopy())
	if current {
		m.countGeneration(ds)
	}
	m.fillImages(k.imagesOf(ds.UID, plain))
	m.startIn(turn)
	if err := k.fill(ds, m, plain); err != nil {
		return nil, err
	}
	outcome.Resources.Fill(&m.spec)
	text, err := outcome.Text(a.PodName)
	if err != nil {
		return nil, err
	}
	metav1.SetMetaDataAnnotation(&m.meta, variant.Annotation, text)
	return m, nil
}
