package storing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/objects/pod"
)

// PodWriter reads and changes pods. Errors are those of the API; patches are strategic merge patches.
type PodWriter interface {
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	// ResizePod sends the patch to pods/resize.
	ResizePod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
}

// tries is how often a pod is resized that changes at the same time.
const tries = 3

// Resize gives a running pod other amounts, and then has it be one of the revision. Before, it says on the pod what it
// is about to ask: if it ends half way, and the pod is not to have that any more, who goes on knows whose amounts they
// are.
// What was done before a crash is done once more, and changes nothing. Gone tells that there is no such pod any more;
// errors are those of the API.
func Resize(
	ctx context.Context, to PodWriter, a *action.ResizePod, way *resizing.Way,
) (gone bool, err error) {
	p, err := changeAmounts(ctx, to, a, way)
	if err == nil && p != nil {
		var patch []byte
		patch, err = signature(p, a, way)
		if err == nil {
			_, err = to.PatchPod(ctx, a.Namespace, a.PodName, patch)
		}
	}
	if err == nil && p == nil || apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

var errResizedSince = errors.New("it was given other amounts since it was looked at; it is looked at once more")

// changeAmounts returns the pod as it is then; nil if it is gone.
func changeAmounts(
	ctx context.Context, to PodWriter, a *action.ResizePod, way *resizing.Way,
) (p *corev1.Pod, err error) {
	for range tries {
		p, err = to.GetPod(ctx, a.Namespace, a.PodName)
		switch {
		case err != nil:
			return nil, err
		case p.UID != a.PodUID, pod.IsTerminating(p):
			return nil, nil
		case !way.IsOf(p):
			return nil, apierrors.NewConflict(corev1.Resource("pods"), p.Name, errResizedSince)
		case len(way.Amounts) == 0:
			return p, nil
		}
		p, err = askFor(ctx, to, p, way)
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// askFor asks for the amounts, of the pod as it was read.
func askFor(ctx context.Context, to PodWriter, p *corev1.Pod, way *resizing.Way) (*corev1.Pod, error) {
	said, err := intend(ctx, to, p, way)
	if err != nil {
		return nil, err
	}
	patch, err := amountsPatch(said, way)
	if err != nil {
		return nil, err
	}
	return to.ResizePod(ctx, p.Namespace, p.Name, patch)
}

// intend has the pod say which amounts it is about to be given, and returns it as it is then.
func intend(ctx context.Context, to PodWriter, p *corev1.Pod, way *resizing.Way) (*corev1.Pod, error) {
	text, err := way.Intend(p)
	if err != nil || text == "" {
		return p, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "annotations": map[string]any{resizing.IntentAnnotation: text},
	}})
	if err != nil {
		return nil, fmt.Errorf("write the patch of pod %s: %w", p.Name, err)
	}
	return to.PatchPod(ctx, p.Namespace, p.Name, patch)
}

// amountsPatch is the strategic merge patch of pods/resize. The version in it is a precondition.
func amountsPatch(p *corev1.Pod, way *resizing.Way) ([]byte, error) {
	changes := func(list []corev1.Container) (out []map[string]any) {
		for i := range list {
			if amounts, is := way.Amounts[list[i].Name]; is {
				out = append(out, map[string]any{"name": list[i].Name, "resources": amounts})
			}
		}
		return out
	}
	spec := map[string]any{}
	for field, list := range map[string][]corev1.Container{
		"containers": p.Spec.Containers, "initContainers": p.Spec.InitContainers,
	} {
		if c := changes(list); len(c) > 0 {
			spec[field] = c
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": p.ResourceVersion}, "spec": spec,
	})
	if err != nil {
		return nil, fmt.Errorf("write the resize of pod %s: %w", p.Name, err)
	}
	return patch, nil
}

// signature is the strategic merge patch; the UID in it is a precondition.
func signature(p *corev1.Pod, a *action.ResizePod, way *resizing.Way) ([]byte, error) {
	record := resizing.Record{Pod: p.Name, Generation: p.Generation, Asked: resizing.AskedOf(p), At: a.At.UTC(),
		Restarts: pod.Restarts(p), RestartsBy: pod.RestartsBy(p), Was: string(a.Before)}
	for _, container := range way.Restarts {
		if record.RestartsBy == nil {
			record.RestartsBy = map[string]int32{}
		}
		record.RestartsBy[container]++
		record.Restarts = max(record.Restarts, record.RestartsBy[container])
	}
	text, err := record.Text()
	if err != nil {
		return nil, err
	}
	annotations := map[string]any{resizing.Annotation: text, resizing.IntentAnnotation: nil, variant.Annotation: nil}
	mark, err := way.Mark.Text(p.Name)
	if err != nil {
		return nil, err
	}
	if mark != "" {
		annotations[variant.Annotation] = mark
	}
	// It refers to the content that it was made with, also where content is no part of revisions any more.
	is := content.Revision(content.TemplateOf(a.Revision), content.IDOf(p.Labels[content.RevisionLabel]))
	is = content.WithVariants(is, content.VariantsOf(a.Revision))
	label := any(nil)
	if is != content.TemplateOf(is) {
		label = is
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "labels": map[string]any{content.RevisionLabel: label}, "annotations": annotations,
	}})
	if err != nil {
		return nil, fmt.Errorf("write the patch of pod %s: %w", p.Name, err)
	}
	return patch, nil
}
