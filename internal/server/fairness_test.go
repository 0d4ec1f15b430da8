package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/fairness"
)

// settled waits until each schema's level is known to be there, as the library's own controller says.
func settled(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	eventually(t, "every flow schema has its priority level", func(ctx context.Context) error {
		schemas, err := client.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		known := 0
		for _, s := range schemas.Items {
			for _, c := range s.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling && c.Status == flowcontrolv1.ConditionFalse {
					known++
				}
			}
		}
		if known != len(schemas.Items) || known < 10 {
			return fmt.Errorf("%d of %d", known, len(schemas.Items))
		}
		return nil
	})
}

func TestFairnessIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	_, client := first(t, "10.96.0.0/24")
	ctx := t.Context()
	settled(t, client)
	dump, err := client.Discovery().RESTClient().Get().AbsPath("/debug/api_priority_and_fairness/dump_priority_levels").DoRaw(ctx)
	if err != nil || !strings.Contains(string(dump), "node-high,") {
		t.Errorf("the debug endpoint says %.200q, %v", dump, err)
	}
	system, err := client.FlowcontrolV1().PriorityLevelConfigurations().Get(ctx, "system", metav1.GetOptions{})
	if err != nil || system.Spec.Limited == nil || system.Spec.Limited.BorrowingLimitPercent == nil ||
		*system.Spec.Limited.BorrowingLimitPercent != 200 {
		t.Errorf("nodes may borrow as many seats as there are: %+v, %v", system.Spec.Limited, err)
	}
	// What the user has made his own stays his, all else comes back.
	schemas := client.FlowcontrolV1().FlowSchemas()
	patch := func(name, change string) *flowcontrolv1.FlowSchema {
		t.Helper()
		changed, err := schemas.Patch(ctx, name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	patch("service-accounts", fmt.Sprintf(`{"metadata":{"annotations":{%q:"false"}},"spec":{"matchingPrecedence":8999}}`,
		flowcontrolv1.AutoUpdateAnnotationKey))
	theirs := patch("system-nodes", `{"spec":{"matchingPrecedence":9999}}`)
	if err := schemas.Delete(ctx, "system-node-high", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	old := theirs.DeepCopy()
	old.ObjectMeta = metav1.ObjectMeta{Name: "of-an-older-version", Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}
	if _, err := schemas.Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{"of-an-older-version": 9999}
	// What somebody writes meanwhile, such as a status, is left for the next time.
	for got["of-an-older-version"] != 0 && ctx.Err() == nil {
		if err := fairness.Ensure(ctx, client); err != nil {
			t.Fatal(err)
		}
		list, err := schemas.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clear(got)
		for _, s := range list.Items {
			got[s.Name] = s.Spec.MatchingPrecedence
		}
	}
	if got["service-accounts"] != 8999 || got["system-nodes"] != 500 || got["system-node-high"] != 400 || got["of-an-older-version"] != 0 {
		t.Errorf("afterwards the precedences are %v", got)
	}
	settled(t, client)
}
