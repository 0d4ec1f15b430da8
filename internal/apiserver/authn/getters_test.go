package authn

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
)

// ofClient reads through a client; the tests' one is in memory.
type ofClient struct{ kubernetes.Interface }

func (c ofClient) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return c.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c ofClient) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return c.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c ofClient) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c ofClient) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// storage has objects as they are, and as its cache has them.
type storage struct {
	now, cached map[string]runtime.Object
	asked       []string
}

func (s *storage) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	namespace, _ := request.NamespaceFrom(ctx)
	s.asked = append(s.asked, namespace+"/"+name+"@"+o.ResourceVersion)
	objects := s.now
	if o.ResourceVersion == "0" {
		objects = s.cached
	}
	if obj := objects[namespace+"/"+name]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("things"), name)
}

// Whoever invents join tokens has the database asked a few times, and no more.
func TestJoinTokensAreReadFromMemory(t *testing.T) {
	known := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "known"}}
	s := &storage{
		now:    map[string]runtime.Object{"kube-system/new": &corev1.Secret{}},
		cached: map[string]runtime.Object{"kube-system/known": known},
	}
	tokens := (&Stored{Secrets: s}).JoinTokens()
	if got, err := tokens.GetSecret(t.Context(), "kube-system", "new"); err != nil || got == nil {
		t.Errorf("one that is not in memory yet: %v, %v", got, err)
	}
	for range 1000 {
		if got, err := tokens.GetSecret(t.Context(), "kube-system", "invented"); !apierrors.IsNotFound(err) {
			t.Fatalf("one that there is not: %v, %v", got, err)
		}
	}
	fresh := 0
	for _, asked := range s.asked {
		if strings.HasSuffix(asked, "@") {
			fresh++
		}
	}
	if fresh > 100 {
		t.Errorf("the database was asked %d times", fresh)
	}
	if got, err := tokens.GetSecret(t.Context(), "kube-system", "known"); err != nil || got != known {
		t.Errorf("one that there is, afterwards: %v, %v", got, err)
	}
}

func TestWhatCannotBeANameIsNotFound(t *testing.T) {
	s := &storage{}
	g := &Stored{Secrets: s, ServiceAccounts: s, Pods: s, Nodes: s}
	for _, name := range []string{"", "..", "a/b", "%"} {
		_, secret := g.GetSecret(t.Context(), "ns", name)
		_, account := g.GetServiceAccount(t.Context(), "ns", name)
		_, pod := g.GetPod(t.Context(), "ns", name)
		_, node := g.GetNode(t.Context(), name)
		for what, err := range map[string]error{"secret": secret, "account": account, "pod": pod, "node": node} {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	if _, err := g.GetPod(t.Context(), "..", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("namespace ..: %v", err)
	}
	if len(s.asked) > 0 {
		t.Errorf("the storage was asked for %q", s.asked)
	}
}

// A pod that is gone is gone at once, whatever the cache says; an account that the cache
// does not know yet is found.
func TestWhatTokensAreBoundToIsReadAsItIs(t *testing.T) {
	old, robot := &corev1.Pod{}, &corev1.ServiceAccount{}
	s := &storage{now: map[string]runtime.Object{"ns/robot": robot, "/n": &corev1.Node{}}, cached: map[string]runtime.Object{"ns/old": old}}
	g := &Stored{Secrets: s, ServiceAccounts: s, Pods: s, Nodes: s}
	if _, err := g.GetPod(t.Context(), "ns", "old"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is gone: %v", err)
	}
	if got, err := g.GetServiceAccount(t.Context(), "ns", "robot"); err != nil || got != robot {
		t.Errorf("a new account: %v", err)
	}
	if _, err := g.GetNode(t.Context(), "n"); err != nil {
		t.Errorf("a node: %v", err)
	}
	if _, err := g.GetPod(t.Context(), "ns", "robot"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("an account that is taken for a pod: %v", err)
	}
	if _, err := (&Stored{}).GetNode(t.Context(), "n"); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("without storages: %v", err)
	}
}
