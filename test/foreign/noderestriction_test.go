package foreign

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// TestWhatAKubeletMayDoToItsTaint has a node's own account write its Node, with NodeRestriction and without: by that
// alone it cannot open itself.
func TestWhatAKubeletMayDoToItsTaint(t *testing.T) {
	for name, restricted := range map[string]bool{"with NodeRestriction": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			c := folder(t)
			if restricted {
				c.admits = []string{"NodeRestriction"}
			}
			c.startAPI()
			c.kubeletWrites(t, restricted)
		})
	}
}

// kubelet is the account of a node.
func (c *cluster) kubelet(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes",
		"system:authenticated"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *cluster) kubeletWrites(t *testing.T, restricted bool) {
	nodes := c.kubelet(t, "own").CoreV1().Nodes()
	gate := corev1.Taint{Key: nodestartup.TaintKey, Value: "all_1", Effect: corev1.TaintEffectNoSchedule}
	// It registers as with --register-with-taints.
	for _, name := range []string{"own", "other"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{gate}}}
		if _, err := c.kubelet(t, name).CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatalf("a node may not register with the taint: %v", err)
		}
	}
	is := func(name string) string {
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if gate := nodestartup.TaintOf(n.Spec.Taints); gate != nil {
			return gate.Value
		}
		return ""
	}
	if got := is("own"); got != "all_1" {
		t.Fatalf("it has registered with the taint %q", got)
	}
	patch := func(name, taints string) error {
		_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
		return err
	}
	// A write of the status drops them, whoever asks.
	_, err := nodes.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"spec":{"taints":null},"status":{"nodeInfo":{"bootID":"b"}}}`),
		metav1.PatchOptions{}, "status")
	if refused := apierrors.IsForbidden(err); err != nil && !refused || is("own") != "all_1" {
		t.Errorf("after a write of the status it is at %q, %v", is("own"), err)
	}
	n, err := nodes.Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := patch("other", "null"); apierrors.IsForbidden(err) != restricted || (is("other") == "all_1") != restricted {
		t.Errorf("another node's taint: %v, and it is at %q", err, is("other"))
	}
	annotate := `{"metadata":{"annotations":{"` + nodestartup.MarkAnnotation + `":"x/b"}}}`
	if _, err := nodes.Patch(t.Context(), "own", types.MergePatchType, []byte(annotate), metav1.PatchOptions{}); err != nil {
		t.Errorf("it may not write its own annotations: %v", err)
	}
	next := gate
	next.Value = "all_2"
	n.Spec.Taints, n.ResourceVersion = []corev1.Taint{next}, ""
	for what, try := range map[string]func() error{
		"take it away":    func() error { return patch("own", "null") },
		"leave it empty":  func() error { return patch("own", "[]") },
		"go on by itself": func() error { _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); return err },
	} {
		switch err := try(); {
		case restricted && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "taints") || is("own") != "all_1"):
			t.Errorf("with the plugin it may %s: %v, and is at %q", what, err, is("own"))
		case !restricted && err != nil:
			t.Errorf("without the plugin it may not %s: %v", what, err)
		case !restricted && is("own") == "all_1":
			t.Errorf("without the plugin it did not %s", what)
		}
		if !restricted {
			if err := patch("own", `[{"key":"`+gate.Key+`","value":"all_1","effect":"NoSchedule"}]`); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Who could delete its Node could make it again without the taint.
	if err := nodes.Delete(t.Context(), "own", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("it may delete its Node: %v", err)
	}
}
