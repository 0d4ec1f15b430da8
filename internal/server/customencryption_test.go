package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/testenv"
)

const hiddenColor = "a-color-that-nobody-may-see"

// addWidget makes a kind and an object of it.
func addWidget(t *testing.T, env *testenv.Env) {
	t.Helper()
	keep := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}}}},
		},
	}
	if _, err := crdclient.NewForConfigOrDie(env.Config).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "color": hiddenColor,
	}}
	env.Eventually("the kind is served", func(ctx context.Context) error {
		_, err := widgetsOf(env).Create(ctx, widget, metav1.CreateOptions{})
		return err
	})
}

func widgetsOf(env *testenv.Env) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(env.Config).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
}

// stored tells with which keys a resource is stored, as everynode secrets status does.
func stored(t *testing.T, env *testenv.Env, resource string) string {
	t.Helper()
	body, err := env.Client.CoreV1().RESTClient().Get().AbsPath(encryption.Path).DoRaw(t.Context())
	var status encryption.Status
	if err == nil {
		err = json.Unmarshal(body, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range status.Resources {
		if r.Name == resource {
			maps.DeleteFunc(r.Stored, func(_ string, n int) bool { return n == 0 })
			return fmt.Sprint(r.Stored)
		}
	}
	return "not told"
}

// fails starts a server on the data, which must refuse in one line with these words.
func fails(t *testing.T, env *testenv.Env, what string, change func(*config.Options), words ...string) {
	t.Helper()
	o := config.Defaults()
	o.DataDir, o.Listen, o.NoFsync = env.DataDir(), []string{"127.0.0.1:0"}, true
	change(&o)
	s, err := server.New(o)
	if err == nil {
		err = s.Run(t.Context())
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", what, err, word)
		}
	}
}

// Objects of added kinds are encrypted where a configuration names them, are counted and
// rewritten with the others, and are looked at before the server starts.
func TestEncryptedCustomObjects(t *testing.T) {
	t.Parallel()
	for _, resources := range []string{"widgets.example.com", "*.*"} {
		t.Run(resources, func(t *testing.T) {
			with := func(providers string) func(*config.Options) {
				change, _ := encryptedAs(t, resources, providers)
				return change
			}
			env := testenv.Start(t, with(oneKey))
			addWidget(t, env)
			if got := stored(t, env, "widgets.example.com"); got != "map[secretbox:one:1]" {
				t.Errorf("widgets are stored as %s", got)
			}
			env.Stop()
			if onDisk(t, filepath.Join(env.DataDir(), "etcd"), hiddenColor) {
				t.Error("the widget can be read in the database's files")
			}
			fails(t, env, "another key", with(otherKey), "cannot be read with --encryption-provider-config", "add the key that they were written with")
			fails(t, env, "no key", func(o *config.Options) { o.API.Etcd.EncryptionProviderConfigFilepath = "" }, "cannot be read", "name their --encryption-provider-config")

			env.Restart(with(otherKey + oneKey))
			if got := stored(t, env, "widgets.example.com"); got != "map[secretbox:one:1]" {
				t.Errorf("before they are rewritten widgets are stored as %s", got)
			}
			for left := 1; left > 0; {
				body, err := env.Client.CoreV1().RESTClient().Post().AbsPath(encryption.RewritePath).DoRaw(t.Context())
				var done encryption.Rewritten
				if err == nil {
					err = json.Unmarshal(body, &done)
				}
				if err != nil {
					t.Fatal(err)
				}
				left = done.Left
			}
			if got := stored(t, env, "widgets.example.com"); got != "map[secretbox:other:1]" {
				t.Errorf("after they were rewritten widgets are stored as %s", got)
			}
			if got := stored(t, env, "customresourcedefinitions.apiextensions.k8s.io"); resources == "*.*" && got != "map[secretbox:other:1]" {
				t.Errorf("their definition is stored as %s", got)
			}
			// The old key can go now.
			env.Restart(with(otherKey))
			if w, err := widgetsOf(env).Get(t.Context(), "w", metav1.GetOptions{}); err != nil || w.Object["color"] != hiddenColor {
				t.Errorf("the widget is %v, %v", w, err)
			}
		})
	}
}
