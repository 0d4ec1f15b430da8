package dashboard

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/retry"

	"github.com/everynode/everynode/internal/change/history"
)

// undo takes a template back to an earlier revision, as "kubectl rollout undo --to-revision" does; but only if the
// DaemonSet is still the one that was shown to who wants that.
func (d *Dashboard) undo(ctx context.Context, namespace, name string, o order) (done string, err error) {
	if o.Revision == "" || o.UID == "" || o.Generation == 0 {
		return "", errors.New("say which revision to go back to, and by its UID and generation which DaemonSet was seen")
	}
	// The status is written all the time; what counts is looked at again then.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		ds, err := d.core.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case ds.UID != o.UID:
			return fmt.Errorf(
				"nothing is undone: daemonset %s/%s was deleted meanwhile, and is another one now; look again", namespace, name,
			)
		case ds.Generation != o.Generation:
			return fmt.Errorf(
				"nothing is undone: somebody has changed daemonset %s/%s meanwhile (generation %d was shown, it is %d by now); "+
					"look again",
				namespace, name, o.Generation, ds.Generation,
			)
		}
		done, err = d.goBack(ctx, ds, o.Revision)
		return err
	})
	return done, err
}

// goBack gives the DaemonSet, as it was read, the template of a revision.
func (d *Dashboard) goBack(ctx context.Context, ds *appsv1.DaemonSet, hash string) (string, error) {
	revision, err := d.revisionOf(ctx, ds, hash)
	if err != nil {
		return "", err
	}
	which := fmt.Sprintf("daemonset %s/%s", ds.Namespace, ds.Name)
	template, err := history.Template(revision)
	if err != nil {
		return "", fmt.Errorf("undo: %w", err)
	}
	if equality.Semantic.DeepEqual(template, &ds.Spec.Template) {
		return fmt.Sprintf("%s has the template of revision %d already", which, revision.Revision), nil
	}
	var patch map[string]any
	if err := json.Unmarshal(revision.Data.Raw, &patch); err != nil {
		return "", fmt.Errorf("undo: read revision %s: %w", revision.Name, err)
	}
	patch["metadata"] = map[string]any{"resourceVersion": ds.ResourceVersion}
	raw, err := json.Marshal(patch)
	if err != nil {
		return "", fmt.Errorf("undo: %w", err)
	}
	if _, err := d.core.AppsV1().DaemonSets(ds.Namespace).Patch(
		ctx, ds.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{},
	); err != nil {
		return "", fmt.Errorf("undo: %w", err)
	}
	return fmt.Sprintf("%s is rolled back to revision %d", which, revision.Revision), nil
}

// revisionOf reads one revision of the DaemonSet.
func (d *Dashboard) revisionOf(ctx context.Context, ds *appsv1.DaemonSet,
	hash string) (*appsv1.ControllerRevision, error) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	list, err := d.core.AppsV1().ControllerRevisions(ds.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: selector.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("look for revision %s: %w", hash, err)
	}
	for i := range list.Items {
		if r := &list.Items[i]; metav1.IsControlledBy(r, ds) && history.HashOf(r) == hash {
			return r, nil
		}
	}
	return nil, fmt.Errorf(
		"nothing is undone: revision %s of daemonset %s/%s is not kept any more", hash, ds.Namespace, ds.Name,
	)
}
