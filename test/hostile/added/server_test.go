package added

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
)

// TestAdded shares one control plane among all attacks. After them, it does its work.
func TestAdded(t *testing.T) {
	c := start(t)
	t.Run("what a server of others is told", c.told)
	t.Run("redirects", c.redirects)
	t.Run("resources that lead elsewhere", c.elsewhere)
	t.Run("groups of the server itself", c.takingOver)
	t.Run("the API server as a webhook", c.itself)
	t.Run("a webhook that never ends", c.endless)
	t.Run("an external name that leads home", c.home)
	t.Run("bodies that cost", c.bodies)
	t.Run("forged conditions", c.conditions)
	t.Run("conversions that lie", c.conversions)
	t.Run("a conversion that hangs", c.hanging)
	t.Run("documents without an end", c.withoutEnd)
	t.Run("documents that spoil those of others", c.spoilers)
	t.Run("documents that come byte by byte", c.slowly)
	t.Run("a hundred servers that hang", c.manyThatHang)
}

// told looks at what a server is told of who asks, whatever the client says.
func (c *cluster) told(t *testing.T) {
	var mu sync.Mutex
	var asked *http.Request
	mux := http.NewServeMux()
	mux.Handle("/apis/told.example.com/v1", resources("told.example.com/v1", resource("things", "Thing")))
	mux.HandleFunc("/apis/told.example.com/v1/things", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("of") == "client" { // the control loops ask as well
			mu.Lock()
			asked = r.Clone(context.Background())
			mu.Unlock()
		}
		answer(w, map[string]any{"kind": "ThingList", "apiVersion": "told.example.com/v1", "metadata": map[string]any{}, "items": []any{}})
	})
	c.pod("told", mux)
	c.add(t, c.apiService("told.example.com", "v1", "told"))
	c.available("v1.told.example.com")

	config := restclient.CopyConfig(c.Config)
	token, err := c.Client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", tokenRequest(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.allow("told.example.com", "things")
	config.CertData, config.KeyData, config.CertFile, config.KeyFile, config.BearerToken = nil, nil, "", "", token.Status.Token
	transport, err := restclient.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	forged := http.Header{
		"X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"0"}, "X-Remote-Extra-Scopes": {"all"}, "x-remote-extra-%66orged": {"all"},
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+"/apis/told.example.com/v1/things?of=client", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = forged
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	mu.Lock()
	defer mu.Unlock()
	if asked == nil {
		t.Fatalf("the server was not asked: %s %s", response.Status, body)
	}
	h := asked.Header
	if got := h.Get("X-Remote-User"); got != "system:serviceaccount:default:default" {
		t.Errorf("the user is %q", got)
	}
	if got := fmt.Sprint(h.Values("X-Remote-Group")); strings.Contains(got, "masters") || !strings.Contains(got, "system:authenticated") {
		t.Errorf("the groups are %s", got)
	}
	for name, values := range h {
		text := strings.Join(values, " ")
		if strings.Contains(text, token.Status.Token) {
			t.Errorf("%s has the client's token", name)
		}
		lower := strings.ToLower(name)
		if lower == "authorization" || strings.HasPrefix(lower, "impersonate-") || strings.HasPrefix(lower, "x-remote-extra-") && text == "all" || lower == "x-remote-uid" && text == "0" {
			t.Errorf("%s: %s is handed on", name, text)
		}
	}
	if peer := asked.TLS.PeerCertificates; len(peer) == 0 || peer[0].Subject.CommonName != "front-proxy-client" {
		t.Errorf("the certificates are %v", peer)
	}
}

// redirects is a server that would send the API server, or its client, elsewhere.
func (c *cluster) redirects(t *testing.T) {
	var reached atomic.Int32
	target := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer target.Close()
	mux := http.NewServeMux()
	mux.Handle("/apis/redirects.example.com/v1", resources("redirects.example.com/v1", resource("things", "Thing")))
	for _, status := range []int{301, 302, 303, 307, 308} {
		mux.HandleFunc(fmt.Sprintf("/apis/redirects.example.com/v1/things/%d", status), func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target.URL+"/secret", status)
		})
	}
	c.pod("redirects", mux)
	c.add(t, c.apiService("redirects.example.com", "v1", "redirects"))
	c.available("v1.redirects.example.com")
	transport, err := restclient.TransportFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	stay := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, status := range []int{301, 302, 303, 307, 308} {
		response, err := stay.Get(fmt.Sprintf("%s/apis/redirects.example.com/v1/things/%d", c.Config.Host, status))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode < 400 || response.Header.Get("Location") != "" {
			t.Errorf("%d became %s to %q", status, response.Status, response.Header.Get("Location"))
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the target was reached %d times", n)
	}
}

// elsewhere is a server whose resources have names that are paths. Who follows them with
// the rights of a control loop comes to objects of others.
func (c *cluster) elsewhere(t *testing.T) {
	ctx := t.Context()
	const group = "elsewhere.example.com"
	var names []metav1.APIResource
	for i, dots := range []string{"../../../../../", "x/../../../../../../"} {
		names = append(names, resource(dots+"api/v1/namespaces/victim/configmaps", fmt.Sprintf("Thing%d", i)))
	}
	names = append(names, resource("things", "Thing"))
	mux := http.NewServeMux()
	mux.Handle("/apis/"+group+"/v1", resources(group+"/v1", names...))
	var asked atomic.Int32
	mux.HandleFunc("/apis/"+group+"/v1/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"MethodNotAllowed","code":405}`, http.StatusMethodNotAllowed)
			return
		}
		list := map[string]any{"kind": "ThingList", "apiVersion": group + "/v1", "metadata": map[string]any{}, "items": []any{}}
		// After a while it has nothing any more, so that the namespace can go.
		if strings.HasSuffix(r.URL.Path, "/namespaces/leads/things") && asked.Add(1) < 4 {
			list["items"] = []any{map[string]any{"kind": "Thing", "apiVersion": group + "/v1", "metadata": map[string]any{
				"namespace": "leads", "name": "../../../../../../../api/v1/namespaces/victim/configmaps/precious", "uid": "1"}}}
		}
		answer(w, list)
	})
	c.pod("elsewhere", mux)
	for _, name := range []string{"victim", "leads"} {
		if _, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	precious := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "precious"}}
	if _, err := c.Client.CoreV1().ConfigMaps("victim").Create(ctx, precious, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.add(t, c.apiService(group, "v1", "elsewhere"))
	c.available("v1." + group)
	c.Eventually("its resources are known", func(ctx context.Context) error {
		list, err := c.Client.Discovery().ServerResourcesForGroupVersion(group + "/v1")
		if err == nil && len(list.APIResources) < 3 {
			err = fmt.Errorf("they are %v", list.APIResources)
		}
		return err
	})
	if err := c.Client.CoreV1().Namespaces().Delete(ctx, "leads", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the namespace is gone", func(ctx context.Context) error {
		if _, err := c.Client.CoreV1().Namespaces().Get(ctx, "leads", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	if asked.Load() == 0 {
		t.Error("the server was not asked for what it has in the namespace")
	}
	if _, err := c.Client.CoreV1().ConfigMaps("victim").Get(ctx, "precious", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of another namespace went along: %v", err)
	}
}
