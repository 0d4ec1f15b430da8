package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/server/config"
)

// No write loses what this server does not know, whoever writes and whatever; deleting is no such write.
func TestWritesThatWouldLoseWhatANewerServerWrote(t *testing.T) {
	o := newOlder(t, func(*config.Options) {})
	ctx, policies := t.Context(), o.own.RolloutPolicies("default")
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p, err := policies.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.newer("rolloutpolicies", "p", "spec", "quorum")
	o.eventually(func(ctx context.Context) string {
		if p, err = policies.Get(ctx, "p", metav1.GetOptions{}); err != nil || newer.Fields(p) == "" {
			return fmt.Sprintf("it is as it was: %v", err)
		}
		return ""
	})
	plain := p.DeepCopy()
	plain.Annotations = nil
	by := func(_ *v1alpha1.RolloutPolicy, err error) error { return err }
	patch := func(kind types.PatchType, text string, part ...string) error {
		o := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			o.FieldManager = "me"
		}
		return by(policies.Patch(ctx, "p", kind, []byte(text), o, part...))
	}
	for name, err := range map[string]error{
		"with what was read":    by(policies.Update(ctx, p, metav1.UpdateOptions{})),
		"without saying it":     by(policies.Update(ctx, plain, metav1.UpdateOptions{})),
		"the status":            by(policies.UpdateStatus(ctx, plain, metav1.UpdateOptions{})),
		"a label":               patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`),
		"a patch of the status": patch(types.MergePatchType, `{"status":{"matchedCount":4}}`, "status"),
		"the annotation away":   patch(types.MergePatchType, `{"metadata":{"annotations":{"everynode.io/unknown-fields":null}}}`),
		"server-side apply": patch(types.ApplyPatchType,
			`{"apiVersion":"everynode.io/v1alpha1","kind":"RolloutPolicy","metadata":{"name":"p"},"spec":{"images":"Pinned"}}`),
		"made with what it says": by(policies.Create(ctx, &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "q",
			Annotations: map[string]string{newer.Annotation: "spec.quorum"}}}, metav1.CreateOptions{})),
		"to go when a finalizer lets it": policies.Delete(ctx, "p", metav1.DeleteOptions{
			PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}),
	} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.quorum") || !strings.Contains(err.Error(), newer.Annotation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, value, _ := o.raw("rolloutpolicies", "p"); !bytes.Contains(value, []byte("quorum")) || bytes.Contains(value, []byte(newer.Annotation+`":"`)) {
		t.Errorf("%s is stored", value)
	}
	if err := policies.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Errorf("it cannot be deleted: %v", err)
	}
	plain.ResourceVersion, plain.UID = "", ""
	plain.Annotations = map[string]string{newer.Annotation: newer.Drop}
	plain, err = policies.Create(ctx, plain, metav1.CreateOptions{})
	if err != nil || len(plain.Annotations) > 0 {
		t.Errorf("it is made with %v: %v", plain.Annotations, err)
	}
}
