package client

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/retry"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// SayNotFollowed has the conditions of a RolloutPolicy or a DaemonSetVariant that has fields which this program does
// not know, and the API does, say that nobody follows it. All else stays as it is there. It does nothing where they say
// so.
func (c *Client) SayNotFollowed(ctx context.Context, o runtime.Object) error {
	resource := ""
	switch o.(type) {
	case *v1alpha1.RolloutPolicy:
		resource = "rolloutpolicies"
	case *v1alpha1.DaemonSetVariant:
		resource = "daemonsetvariants"
	default: // a DaemonSetRollout remembers in conditions, and a NodeStartup is written elsewhere
		return nil
	}
	of := o.(metav1.Object)
	why := newer.Check(of)
	if why == nil {
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return c.sayOf(ctx, resource, of, why) })
}

// sayOf reads the object as the API has it, and writes it with other conditions. It lists: a controller's account may
// list variants, and get none.
func (c *Client) sayOf(ctx context.Context, resource string, of metav1.Object, why error) error {
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + of.GetName()}
	raw, err := c.api.Get().Namespace(of.GetNamespace()).Resource(resource).VersionedParams(&only, parameterCodec).
		Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("read all that is in %s %s: %w", resource, of.GetName(), err)
	}
	var all struct {
		Items []map[string]any `json:"items"`
	}
	err = json.Unmarshal(raw, &all) // whole numbers stay so
	if err != nil {
		return fmt.Errorf("read all that is in %s %s: %w", resource, of.GetName(), err)
	}
	if len(all.Items) != 1 {
		return nil
	}
	is := unstructured.Unstructured{Object: all.Items[0]}
	if is.GetUID() != of.GetUID() || !doubt(&is, why.Error(), time.Now()) {
		return nil
	}
	body, err := json.Marshal(is.Object)
	if err != nil {
		return fmt.Errorf("write the conditions of %s %s: %w", resource, of.GetName(), err)
	}
	err = c.api.Put().Namespace(of.GetNamespace()).Resource(resource).Name(of.GetName()).SubResource("status").Body(body).
		Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write the conditions of %s %s: %w", resource, of.GetName(), err)
	}
	return nil
}

// doubt has all conditions be unknown, and reports whether any was not.
func doubt(o *unstructured.Unstructured, why string, now time.Time) (changed bool) {
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, one := range conditions {
		c, is := one.(map[string]any)
		if !is || c["status"] == string(metav1.ConditionUnknown) {
			continue
		}
		changed = true
		c["status"], c["reason"], c["message"] = string(metav1.ConditionUnknown), newer.NotFollowed, why
		c["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
	}
	return changed && unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions") == nil
}
