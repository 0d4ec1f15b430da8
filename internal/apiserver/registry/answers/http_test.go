package answers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/testenv"
)

// overHTTP sends the requests to a server, as they were when they were recorded.
func overHTTP(env *testenv.Env) answerer {
	return func(t *testing.T, a answer) answer {
		t.Helper()
		client, err := restclient.HTTPClientFor(env.Config)
		if err != nil {
			t.Fatal(err)
		}
		url := env.Config.Host + a.Path + "?dryRun=All&fieldValidation=Strict"
		res, err := client.Post(url, "application/json", bytes.NewReader(a.Request))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, res, body)
	}
}

func read(t *testing.T, res *http.Response, body []byte) answer {
	t.Helper()
	got := answer{Code: res.StatusCode}
	for _, w := range res.Header.Values("Warning") {
		if !strings.Contains(w, deprecated) {
			got.Warnings = append(got.Warnings, warningText(w))
		}
	}
	if res.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(body, &got.Object); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		withoutToken(got.Object)
		return got
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	refusal := refusalOf(status)
	refusal.Warnings = got.Warnings
	return refusal
}

// withoutToken takes the volume of the service account's token out of a pod: the
// recorded server had no admission that adds it.
func withoutToken(obj map[string]any) {
	spec, ok := obj["spec"].(map[string]any)
	if !ok || obj["kind"] != "Pod" {
		return
	}
	isToken := func(v any) bool {
		name, _ := v.(map[string]any)["name"].(string)
		return strings.HasPrefix(name, "kube-api-access-")
	}
	drop := func(holder map[string]any, key string) {
		list, ok := holder[key].([]any)
		if !ok {
			return
		}
		if list = slices.DeleteFunc(list, isToken); len(list) == 0 {
			delete(holder, key)
			return
		}
		holder[key] = list
	}
	drop(spec, "volumes")
	for _, key := range []string{"containers", "initContainers"} {
		list, _ := spec[key].([]any)
		for _, c := range list {
			drop(c.(map[string]any), "volumeMounts")
		}
	}
}
