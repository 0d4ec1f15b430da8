// Package kinds tests what clients do with the smaller kinds of the API, all of them
// against one control plane with a simulated node.
package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv"
)

// cluster is the control plane, and a namespace of one test.
type cluster struct {
	*testenv.Env
	namespace string
}

// tests are those of this package, each with a namespace of its own.
var tests = map[string]func(*testing.T, cluster){
	"pod templates":           podTemplates,
	"runtime classes":         runtimeClasses,
	"networking":              networkKinds,
	"service networks":        serviceNetworks,
	"addresses":               addressKinds,
	"storage":                 storageKinds,
	"devices":                 deviceKinds,
	"volumes and claims":      volumesAndClaims,
	"local volumes":           localVolumes,
	"claims in a quota":       claimQuota,
	"limits":                  limitRanges,
	"quotas":                  resourceQuotas,
	"quota scopes":            quotaScopes,
	"counted kinds":           countedKinds,
	"counted added kinds":     countedAdded,
	"changed limits":          changedLimits,
	"replication controllers": replicationControllers,
	"resized together":        resizedTogether,
	"daemons in a quota":      daemonsInAQuota,
	"autoscalers":             autoscalers,
	"topology of pods":        topologyOfPods,
	"deletion by status":      deletionByStatus,
}

func TestKinds(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster{env, strings.ReplaceAll(name, " ", "-")}
			must(env.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, metav1.CreateOptions{}))(t)
			env.Eventually("the account of "+c.namespace, func(ctx context.Context) error {
				_, err := env.Client.CoreV1().ServiceAccounts(c.namespace).Get(ctx, "default", metav1.GetOptions{})
				return err
			})
			test(t, c)
		})
	}
}

// must makes of a result and an error a function that gives the result or fails the test.
func must[T any](result T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// refused fails unless err is a refusal for that reason, with that text in it.
func refused(t *testing.T, err error, reason metav1.StatusReason, text string) {
	t.Helper()
	if apierrors.ReasonForError(err) != reason || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("got %v, want %s: %s", err, reason, text)
	}
}

// named is the metadata of an object of a test.
func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
}

// onePod is an ordinary pod.
func onePod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: named(name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}}}
}

// refusal is met when something is refused with that text.
func refusal(f func() error, text string) func(context.Context) error {
	return func(context.Context) error {
		if err := f(); !strings.Contains(fmt.Sprint(err), text) {
			return fmt.Errorf("got %w, want %s", err, text)
		}
		return nil
	}
}
