package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// maxVarieties is how many templates with variants are kept worked out.
const maxVarieties = 64

// varieties are templates with their variants, of which pods were made. Neither changes: the name of each says what it
// holds.
type varieties struct {
	client kubernetes.Interface

	mu    sync.Mutex
	known map[variety]*variant.Molds
}

// variety is a template with variants, of a DaemonSet.
type variety struct {
	set          types.UID
	template, id string
}

// outcome is what a pod of the revision is to be like on its node; nil where the revision has no variants. The
// revisions are the DaemonSet's. The error says why it cannot be had: no pod is made there then, as by our own
// controller. The node is read from the API: by labels that it had before, the one who leads would replace the pod
// again.
func (v *varieties) outcome(ctx context.Context, ds *appsv1.DaemonSet, revision string,
	revisions []*appsv1.ControllerRevision, node string) (*variant.Outcome, error) {
	id := content.VariantsOf(revision)
	if id == "" {
		return nil, nil
	}
	if node == "" {
		return nil, errors.New("it is not made for one node, so nobody knows its variant")
	}
	n, err := v.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", node, err)
	}
	m, err := v.molds(ctx, ds, variety{ds.UID, content.TemplateOf(revision), id}, revisions)
	if err != nil {
		return nil, err
	}
	is := variant.OfNode(n)
	v.mu.Lock() // molds remember what they have merged
	defer v.mu.Unlock()
	o := m.Of(&is)
	return &o, o.Err
}

// molds are the pods of a variety. Two who ask for what is not known yet both read it, and the later one's are kept.
func (v *varieties) molds(ctx context.Context, ds *appsv1.DaemonSet, key variety,
	revisions []*appsv1.ControllerRevision) (*variant.Molds, error) {
	v.mu.Lock()
	m := v.known[key]
	v.mu.Unlock()
	if m != nil {
		return m, nil
	}
	m, err := v.read(ctx, ds, key, revisionOf(revisions, key.template))
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxVarieties {
		clear(v.known)
	}
	v.known[key] = m
	return m, nil
}

// read reads the variants from the API, and works them out on a template.
func (v *varieties) read(ctx context.Context, ds *appsv1.DaemonSet, key variety, of *appsv1.ControllerRevision) (
	*variant.Molds, error) {
	if of == nil {
		return nil, fmt.Errorf("the template %s is not known", key.template)
	}
	template, err := history.Template(of)
	if err != nil {
		return nil, fmt.Errorf("read the template of %s: %w", of.Name, err)
	}
	name := variants.NameOf(ds, key.id)
	held, err := v.client.AppsV1().ControllerRevisions(ds.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the variants of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	set, err := variants.Read(held, key.id)
	if err != nil {
		return nil, err
	}
	return set.On(template), nil
}
