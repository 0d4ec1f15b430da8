package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// chartOf is a copy of the controller's chart whose definitions have another schema: of its number, and, if it is newer
// than the program's, with one more field.
func chartOf(t *testing.T, number string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	if out, err := exec.Command("cp", "-r", controllerChart, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the chart: %v: %s", err, out)
	}
	path := filepath.Join(dir, "files/definitions.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := strings.ReplaceAll(string(text), `everynode.io/schema: "1"`, `everynode.io/schema: "`+number+`"`)
	if number > "1" {
		next = strings.Replace(next, "              waves:\n", "              quorum: {type: integer}\n              waves:\n", 1)
	}
	if next == string(text) && number != "1" {
		t.Fatal("the definitions have no schema of number 1")
	}
	if err := os.WriteFile(path, []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// No Helm puts an older definition over a newer one: a rollback is refused, an upgrade to an older chart leaves the
// newer one, and both ways all else can go back.
func TestOlderDefinitionsNeverReplaceNewerOnes(t *testing.T) {
	for version := range versions {
		t.Run(version, func(t *testing.T) { olderDefinitions(t, version) })
	}
}

func olderDefinitions(t *testing.T, version string) {
	program := Program(t, version)
	on := start(t, "--daemonset-controller=false")
	old, next := chartOf(t, "1"), chartOf(t, "2")
	r := &release{cluster: on, t: t, program: program, home: t.TempDir(), chart: old, name: "everynode", namespace: "agents"}
	objects := dynamic.NewForConfigOrDie(on.Config).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io",
		Version: "v1", Resource: "customresourcedefinitions"})
	is := func(number string, quorum bool) {
		t.Helper()
		u, err := objects.Get(t.Context(), "rolloutpolicies.everynode.io", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
			t.Fatal(err)
		}
		_, has := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["quorum"]
		if got := d.Annotations["everynode.io/schema"]; got != number || has != quorum {
			t.Fatalf("with Helm %s the definition has the schema %s and the new field: %t; want %s, %t", version, got, has, number, quorum)
		}
	}
	values := []string{"--set", "replicas=1,image.tag=v1,image.repository=everynode.io/demo"}
	r.install(append(values, "--create-namespace")...)
	is("1", false)
	r.chart = next
	r.upgrade(values...)
	is("2", true)
	r.refused("the definition in the cluster is newer", "rollback", r.name, "1", "--wait", "--timeout", patience)
	is("2", true)
	r.chart = old
	r.upgrade(append(values, "--set", "controller.verbosity=3")...)
	is("2", true)
	r.chart = next
	r.upgrade(values...)
	is("2", true)
	r.helm("uninstall", r.name, "--wait", "--timeout", patience)
	is("2", true)
}
