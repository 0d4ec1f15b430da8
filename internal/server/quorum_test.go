package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// watchable are paths of kinds that are kept in all the ways that there are: in the library's cache, in ours, in
// none, of definitions, of a custom kind, of our own group without a storage.
var watchable = []string{
	"/api/v1/configmaps", "/api/v1/namespaces/default/secrets", "/api/v1/services", "/api/v1/events", "/api/v1/pods",
	"/api/v1/nodes", "/apis/coordination.k8s.io/v1/leases", "/apis/apps/v1/daemonsets",
	"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices",
	"/apis/example.com/v1/things", "/apis/network.everynode.io/v1/nodes",
}

var cutFor = flag.Duration("cut", 0, "for how long a server stays cut off at least")

// A server that is cut off from the majority ends the watches of every kind, whatever keeps it, and takes none, so that
// clients go to another server. It answers all else as before, and takes watches again when it is back.
func TestWatchesOfEveryKindEndWithoutMajority(t *testing.T) {
	t.Parallel()
	all := threeServers(t)
	cut := all[2]
	defineThings(t, cut)
	client, err := rest.HTTPClientFor(cut.configOf(cut.url()))
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 0
	sockets := webSockets(t, cut)
	version := listed(t, client, cut.url())
	running, upgraded := map[string]*http.Response{}, map[string]*http.Response{}
	for _, path := range watchable {
		cut.eventually("watch "+path, func(context.Context) (err error) {
			running[path], err = watching(t, client, cut.url(), path, version)
			return err
		})
		cut.eventually("watch over a WebSocket "+path, func(context.Context) (err error) {
			upgraded[path], err = watching(t, sockets, cut.url(), path, version)
			return err
		})
	}
	began := time.Now()
	all[0].stop()
	all[1].stop()
	for _, path := range watchable {
		_, err := io.ReadAll(running[path].Body)
		if err != nil {
			t.Errorf("the watch of %s ends with %v, and not in order", path, err)
		}
		if upgraded[path].StatusCode == http.StatusOK {
			continue // ours, for agents, which make no WebSockets
		}
		told, err := io.ReadAll(upgraded[path].Body)
		if err != nil || !bytes.HasSuffix(told, closedNormally) {
			t.Errorf("the watch of %s over a WebSocket ends with %q %v, and not in order", path, told, err)
		}
	}
	if code, text := answered(t, client, cut.url()+"/api/v1/configmaps?resourceVersion=0"); code == http.StatusOK {
		t.Errorf("without a majority a list is what the server remembers: %s", text)
	}
	takeNoWatch(t, cut, version, client, sockets)
	for time.Since(began) < *cutFor && !t.Failed() {
		time.Sleep(time.Second)
		takeNoWatch(t, cut, version, client, sockets)
	}
	if code, text := answered(t, client, cut.url()+"/apis"); code != http.StatusOK {
		t.Errorf("without a majority the administrator is not let in: %d %s", code, text)
	}
	if code, text := answered(t, client, cut.url()+"/readyz"); code == http.StatusOK {
		t.Errorf("without a majority a balancer is told that all is well: %s", text)
	}
	if _, text := answered(t, client, cut.url()+"/readyz/quorum"); !strings.Contains(text, "no leader since 20") {
		t.Errorf("without a majority it is not said since when: %s", text)
	}

	all[0].start()
	cut.eventually("it is ready", func(context.Context) error {
		if code, text := answered(t, client, cut.url()+"/readyz"); code != http.StatusOK {
			return errors.New(text)
		}
		return nil
	})
	written(t, "after", all[0], all[0])
	cut.eventually("the watch goes on from where it ended", func(context.Context) error {
		response, err := watching(t, client, cut.url(), "/api/v1/configmaps", version)
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"name":"after"`) {
				return nil
			}
		}
		return fmt.Errorf("it does not tell what was written meanwhile: %w", lines.Err())
	})
}

// takeNoWatch fails if a watch of any kind begins at a server that is cut off.
func takeNoWatch(t *testing.T, cut *machine, version string, clients ...*http.Client) {
	t.Helper()
	for _, path := range watchable {
		for _, by := range clients {
			response, err := watching(t, by, cut.url(), path, version)
			if err == nil || response == nil {
				t.Errorf("without a majority a watch of %s begins", path)
				continue
			}
			refused := response.StatusCode == http.StatusServiceUnavailable && strings.Contains(err.Error(), "ask another one")
			if !refused || response.Header.Get("Retry-After") == "" {
				t.Errorf("without a majority a watch of %s gets %v %v", path, response.Header, err)
			}
		}
	}
}

// closedNormally is the last frame of a WebSocket whose server has nothing more to tell: close, of two bytes, 1000.
var closedNormally = []byte{0x88, 2, 0x03, 0xe8}

// webSockets returns a client that asks for each of its watches to be a WebSocket.
func webSockets(t *testing.T, m *machine) *http.Client {
	t.Helper()
	config := m.configOf(m.url())
	config.NextProtos = []string{"http/1.1"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
				"Origin": m.url(), "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
				r.Header.Set(name, value)
			}
			return next.RoundTrip(r)
		})
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 0
	return client
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// configOf is how the administrator reaches a server.
func (m *machine) configOf(url string) *rest.Config {
	config := m.config()
	config.Host = url
	return config
}

// listed reads ConfigMaps from a server's memory, and returns of which version they are.
func listed(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	code, text := answered(t, client, url+"/api/v1/configmaps?resourceVersion=0&limit=1")
	_, rest, ok := strings.Cut(text, `"resourceVersion":"`)
	if code != http.StatusOK || !ok {
		t.Fatal(code, text)
	}
	version, _, _ := strings.Cut(rest, `"`)
	return version
}

func answered(t *testing.T, client *http.Client, url string) (code int, text string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// watching begins a watch. The answer is there with an error, too, if the server gave one.
func watching(t *testing.T, client *http.Client, url, path, version string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), severalPatience)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path+"?watch=1&resourceVersion="+version, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response, errors.Join(fmt.Errorf("%s: %s", response.Status, text), err)
	}
	return response, nil
}

// defineThings makes a kind, and waits until it is served.
func defineThings(t *testing.T, at *machine) {
	t.Helper()
	definitions, err := apiextensions.NewForConfig(at.config())
	if err != nil {
		t.Fatal(err)
	}
	keep := true
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
	d.Spec.Group, d.Spec.Scope = "example.com", apiextensionsv1.ClusterScoped
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"}
	anything := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: anything},
	}}
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
