package added

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bodies are definitions, and what is no definition, that would cost the server dearly.
func (c *cluster) bodies(t *testing.T) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	definition := func(schema string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"xs.bodies.example.com"},"spec":{"group":"bodies.example.com","scope":"Namespaced",
			"names":{"plural":"xs","singular":"x","kind":"X"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
	}
	nested := func(n int) string {
		return strings.Repeat(`{"type":"object","properties":{"a":`, n) + `{"type":"string"}` + strings.Repeat(`}}`, n)
	}
	bomb := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: xs.bodies.example.com\n  annotations:\n    a0: &a0 x\n"
	for i := 1; i < 30; i++ {
		bomb += fmt.Sprintf("    a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	for name, b := range map[string]struct{ contentType, body string }{
		"thousands of levels":      {"application/json", definition(nested(5000))},
		"as deep as the body goes": {"application/json", definition(nested(70000))},
		"JSON of brackets":         {"application/json", strings.Repeat("[", 2<<20)},
		"JSON of objects":          {"application/json", strings.Repeat(`{"a":`, 500000)},
		"a YAML bomb":              {"application/yaml", bomb},
		"3 MiB of one name":        {"application/json", definition(`{"type":"object","properties":{"` + strings.Repeat("x", 3<<20-2000) + `":{"type":"string"}}}`)},
		"a default that is wrong":  {"application/json", definition(`{"type":"object","properties":{"a":{"type":"integer","default":"x"}}}`)},
		"a default that is huge":   {"application/json", definition(`{"type":"object","properties":{"a":{"type":"integer","default":1e400}}}`)},
		"broken UTF-8":             {"application/json", definition(`{"type":"object","description":"` + "\xff\xfe" + `","properties":{"a":{"type":"integer","default":"` + "\xc3\x28" + `"}}}`)},
		"a schema that is itself":  {"application/json", definition(`{"type":"object","$ref":"#"}`)},
		"a huge count":             {"application/json", definition(`{"type":"array","minItems":9223372036854775808}`)},
	} {
		begin := time.Now()
		err := c.Client.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", b.contentType).Body([]byte(b.body)).Do(t.Context()).Error()
		if err == nil {
			t.Errorf("%s is taken", name)
		} else if strings.Contains(err.Error(), "panic") || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "Internal error") {
			t.Errorf("%s: %.300s", name, err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%s: the refusal took %v", name, took)
		}
	}
}

// conditions are forged by who may write definitions, and not their status.
func (c *cluster) conditions(t *testing.T) {
	ctx := t.Context()
	api := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	first, second := c.shifting("forged.example.com"), c.shifting("forged.example.com")
	second.Name, second.Spec.Names.Plural = "others.forged.example.com", "others" // the same kind
	second.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: "True"}, {Type: apiextensionsv1.Established, Status: "True"}, {Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: "True"}}
	second.Status.AcceptedNames, second.Status.StoredVersions = second.Spec.Names, []string{"v1", "v9"}
	for _, d := range []*apiextensionsv1.CustomResourceDefinition{first, second} {
		if _, err := api.Create(ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if d == first {
			c.Eventually("it is established", func(ctx context.Context) error { return c.has(ctx, first.Name, apiextensionsv1.Established, "True") })
		}
	}
	c.Eventually("its names are refused", func(ctx context.Context) error {
		return c.has(ctx, second.Name, apiextensionsv1.NamesAccepted, "False")
	})
	forged := `{"metadata":{"annotations":{"a":"b"}},"status":{"conditions":[{"type":"Established","status":"True"},{"type":"NamesAccepted","status":"True"}],"storedVersions":["v1"]}}`
	if _, err := api.Patch(ctx, second.Name, types.MergePatchType, []byte(forged), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	now, err := api.Get(ctx, second.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.has(ctx, second.Name, apiextensionsv1.NamesAccepted, "False"); err != nil || now.Annotations["a"] != "b" {
		t.Errorf("after a forged status: %v, %v", err, now.Annotations)
	}
	if err := c.has(ctx, second.Name, apiextensionsv1.Established, "True"); err == nil {
		t.Error("it is established")
	}
}

func (c *cluster) has(ctx context.Context, name string, condition apiextensionsv1.CustomResourceDefinitionConditionType, want apiextensionsv1.ConditionStatus) error {
	d, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, x := range d.Status.Conditions {
		if x.Type == condition && x.Status == want {
			return nil
		}
	}
	return fmt.Errorf("the conditions of %s are %v", name, d.Status.Conditions)
}

// TestManyDefinitions measures what as many definitions cost as EVERYNODE_DEFINITIONS says.
func TestManyDefinitions(t *testing.T) {
	many, _ := strconv.Atoi(os.Getenv("EVERYNODE_DEFINITIONS"))
	if many == 0 {
		t.Skip("EVERYNODE_DEFINITIONS=1000 measures a thousand")
	}
	c := start(t)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse >> 20
	}
	t.Logf("before: %d MB", memory())
	begin := time.Now()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range many {
		group.Go(func() error {
			_, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), c.shifting(fmt.Sprintf("g%d.example.com", i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d made after %v", many, time.Since(begin))
	said := time.Now()
	c.Eventually("all are in discovery", func(ctx context.Context) error {
		body, err := c.Client.Discovery().RESTClient().Get().AbsPath("/apis").SetHeader("Accept", "application/json").DoRaw(ctx)
		if n := strings.Count(string(body), ".example.com\",\"versions"); err == nil && n < many {
			if err = fmt.Errorf("%d are", n); time.Since(said) > 10*time.Second {
				said = time.Now()
				t.Logf("%v: %d groups", time.Since(begin), n)
			}
		}
		return err
	})
	t.Logf("in discovery after %v; %d MB", time.Since(begin), memory())
	begin = time.Now()
	if _, err := c.Client.Discovery().RESTClient().Get().AbsPath("/openapi/v2").DoRaw(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("OpenAPI v2 took %v; %d MB", time.Since(begin), memory())
	time.Sleep(15 * time.Second)
	t.Logf("15 s later: %d MB", memory())
	begin = time.Now()
	c.Restart()
	t.Logf("the restart took %v; %d MB", time.Since(begin), memory())
}
