package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/node/peer"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

const networks = "/apis/network.everynode.io/v1/nodes"

// asNode is the configuration with which the node asks.
func asNode(config *rest.Config, name string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
	return config
}

// aNode has much that concerns nobody else.
func aNode(name, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": "secret-rack"}, Annotations: map[string]string{"a": "secret-note"}},
		Spec:       corev1.NodeSpec{ProviderID: "secret-provider"},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}},
			Images:    []corev1.ContainerImage{{Names: []string{"secret-image"}}},
		},
	}
}

// ask makes a request and returns the code and what was answered.
func ask(t *testing.T, config *rest.Config, method, path string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// A node learns of others what its network needs, and nothing else.
func TestNodesLearnOfEachOtherWhatNetworksNeed(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	ctx := t.Context()
	for name, ip := range map[string]string{"n1": "10.0.0.1", "n2": "10.0.0.2"} {
		if _, err := env.Client.CoreV1().Nodes().Create(ctx, aNode(name, ip), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n1 := asNode(env.Config, "n1")
	client := kubernetes.NewForConfigOrDie(n1)
	const words = `nodes is forbidden: User "system:node:n1" cannot list resource "nodes" in API group "" at the cluster scope: node 'n1' cannot read all nodes, only its own Node object`
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) || err.Error() != words {
		t.Errorf("listing all Nodes in full: %v", err)
	}
	own, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=n1"})
	if err != nil || len(own.Items) != 1 {
		t.Errorf("listing its own: %v, %v", own, err)
	}

	seen := cache.NewStore(cache.MetaNamespaceKeyFunc)
	source, err := network.AllNodes(n1)
	if err != nil {
		t.Fatal(err)
	}
	go cache.NewReflectorWithOptions(source, &peer.Node{}, seen, cache.ReflectorOptions{}).RunWithContext(ctx)
	eventually(t, "both nodes are seen with their pod networks", func() bool { return len(networksOf(seen)) == 2 })

	code, list := ask(t, n1, http.MethodGet, networks)
	if code != http.StatusOK || strings.Contains(list, "secret") || strings.Contains(list, "192.0.2.1") {
		t.Errorf("%d: more is told than is needed: %s", code, list)
	}
	var all peer.NodeList
	if err := json.Unmarshal([]byte(list), &all); err != nil || len(all.Items) != 2 || all.Kind != "NodeList" {
		t.Fatalf("the list is %s (%v)", list, err)
	}
	n2, err := env.Client.CoreV1().Nodes().Get(ctx, "n2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := all.Items[1]; got.Name != "n2" || got.UID != n2.UID || !got.CreationTimestamp.Equal(&n2.CreationTimestamp) ||
		!slices.Equal(got.Addresses, []string{"10.0.0.2"}) || !slices.Equal(got.PodCIDRs, n2.Spec.PodCIDRs) {
		t.Errorf("n2 is told as %+v", got)
	}
	for _, c := range []struct {
		who          *rest.Config
		method, path string
		want         int
	}{
		{n1, http.MethodGet, networks + "/n2", http.StatusForbidden},
		{env.Config, http.MethodGet, networks + "/n2", http.StatusMethodNotAllowed},
		{env.Config, http.MethodPost, networks, http.StatusMethodNotAllowed},
		{n1, http.MethodPost, networks, http.StatusForbidden},
		{n1, http.MethodGet, networks + "?labelSelector=a%3Db", http.StatusBadRequest},
		{n1, http.MethodGet, networks + "?fieldSelector=metadata.name%3Dn2", http.StatusBadRequest},
		{n1, http.MethodGet, networks + "?continue=x", http.StatusBadRequest},
		{n1, http.MethodGet, networks + "?watch=true&resourceVersion=x", http.StatusBadRequest},
		{n1, http.MethodGet, networks + "?sendInitialEvents=true", http.StatusUnprocessableEntity},
		{env.Config, http.MethodGet, "/apis/network.everynode.io/v1/pods", http.StatusNotFound},
		{asAccount(env.Config), http.MethodGet, networks, http.StatusForbidden},
		{env.Config, http.MethodGet, "/apis/network.everynode.io/v1", http.StatusOK},
		{env.Config, http.MethodGet, "/apis/network.everynode.io/", http.StatusOK},
	} {
		if code, body := ask(t, c.who, c.method, c.path); code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, code, c.want, body)
		}
	}
	watchNetworks(t, env, n1, all.ResourceVersion)
}

// watchNetworks changes n2, and looks at what a node is told of it.
func watchNetworks(t *testing.T, env *testenv.Env, n1 *rest.Config, from string) {
	t.Helper()
	ctx := t.Context()
	nodes := env.Client.CoreV1().Nodes()
	patch := func(path, body string) {
		t.Helper()
		if _, err := nodes.Patch(ctx, "n2", types.MergePatchType, []byte(body), metav1.PatchOptions{}, strings.Fields(path)...); err != nil {
			t.Fatal(err)
		}
	}
	patch("", `{"metadata":{"labels":{"other":"label"}}}`)
	patch("status", `{"status":{"images":[]}}`)
	patch("status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`)
	if err := nodes.Delete(ctx, "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	lines := func(query string, want int) (out []string) {
		t.Helper()
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		client, err := rest.HTTPClientFor(n1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(limited, http.MethodGet, n1.Host+networks+"?watch=true&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		for scanner := bufio.NewScanner(answer.Body); len(out) < want && scanner.Scan(); {
			var e struct {
				Type   string
				Object peer.Node
			}
			if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
				t.Fatalf("%q: %v", scanner.Text(), err)
			}
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %v %s", e.Type, e.Object.Name, e.Object.Addresses, e.Object.Annotations[metav1.InitialEventsAnnotationKey])))
		}
		return out
	}
	for _, c := range []struct {
		name, query string
		want        []string
	}{
		{"what changed since the list", "resourceVersion=" + from, []string{"MODIFIED n2 [10.0.0.9]", "DELETED n2 [10.0.0.9]"}},
		{"all at first", "resourceVersion=0", []string{"ADDED n1 [10.0.0.1]"}},
		{"all at first, and an end of it", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", []string{"ADDED n1 [10.0.0.1]", "BOOKMARK  [] true"}},
	} {
		if got := lines(c.query, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if code, body := ask(t, n1, http.MethodGet, networks+"?watch=true&timeoutSeconds=1&resourceVersion=9999999"); code != http.StatusOK || body != "" {
		t.Errorf("a watch of the future: %d %s", code, body)
	}
}

func networksOf(seen cache.Store) (out []string) {
	for _, obj := range seen.List() {
		if n, ok := obj.(*peer.Node); ok {
			out = append(out, n.PodCIDRs...)
		}
	}
	return out
}

func asAccount(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return config
}

// While agents of old are updated, the operator may let them read what they did.
func TestNodesReadAllNodesWhenToldSo(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, func(o *config.Options) { o.API.NodesReadAllNodes = true })
	client := kubernetes.NewForConfigOrDie(asNode(env.Config, "n1"))
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing all Nodes: %v", err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("getting another's Node: %v", err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to pass that %s", what)
		}
	}
}
