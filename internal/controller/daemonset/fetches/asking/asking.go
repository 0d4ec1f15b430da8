// Package asking asks nodes for images before their turn: agents of ours by an annotation, others by pods that pull.
package asking

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// Patcher sends strategic merge patches. Errors are those of the API.
type Patcher interface {
	PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
}

// Writer makes and deletes pods too.
type Writer interface {
	Patcher
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// DeletePod deletes that pod and no other of its name.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
}

// For is what an agent is asked for, of whose node the daemon's present pod is.
func For(revision string, next *corev1.PodSpec, present *corev1.Pod) *fetch.Request {
	request := &fetch.Request{Revision: revision}
	request.Images, _ = fetch.Images(next) // the rollout's status says that there are more
	if present != nil {
		request.Lacks, request.OfAccount = fetch.Lacks(next, &present.Spec)
	}
	return request
}

// Agent asks the agent of a pod for the images of a revision. A nil request takes back what was asked.
func Agent(ctx context.Context, by Patcher, a *action.FetchImages, request *fetch.Request, now time.Time) error {
	var value any
	if request != nil {
		request.At = now.UTC()
		text, err := request.Text()
		if err != nil {
			return err
		}
		value = text
	}
	// The UID is a precondition.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": a.PodUID, "annotations": map[string]any{fetch.Name: value},
	}})
	if err != nil {
		return fmt.Errorf("write the patch of pod %s: %w", a.PodName, err)
	}
	_, err = by.PatchPod(ctx, a.Namespace, a.PodName, patch)
	return err
}

// Do does a job.
func Do(ctx context.Context, by Writer, j fetches.Job) fetches.Result {
	what, of, err, taken := "", klog.KRef(j.Namespace, j.Name), error(nil), ""
	switch {
	case j.Make != nil:
		what, of = "made", klog.KObj(j.Make)
		_, err = by.CreatePod(ctx, j.Make)
		if apierrors.IsAlreadyExists(err) {
			err, taken = nil, isTaken(ctx, by, j.Make) // one from before the watch tells of
		}
	case j.Delete != nil:
		what, of = "deleted", klog.KObj(j.Delete)
		err = by.DeletePod(ctx, j.Delete.Namespace, j.Delete.Name, j.Delete.UID)
	default:
		what = "noted"
		_, err = by.PatchPod(ctx, j.Namespace, j.Name, j.Note)
	}
	if err == nil || j.Make == nil && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
		klog.FromContext(ctx).V(3).Info("Fetches images by a pod", "what", what, "pod", of)
		return fetches.Result{Job: j, Taken: taken}
	}
	klog.FromContext(ctx).V(2).Info("Cannot fetch images by a pod", "not", what, "pod", of, "err", err)
	return fetches.Result{Job: j, Why: err.Error()}
}

// isTaken says that a pod which fetches nothing for the node has the name; "" if that is not so, or not known.
func isTaken(ctx context.Context, by Writer, p *corev1.Pod) string {
	is, err := by.GetPod(ctx, p.Namespace, p.Name)
	if err != nil {
		return ""
	}
	has, of := fetchpod.Of(is)
	want, wantOf := fetchpod.Of(p)
	if has == want && of == wantOf {
		return ""
	}
	return "there is another pod of the name " + p.Name
}
