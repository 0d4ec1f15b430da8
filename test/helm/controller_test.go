package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

const controllerChart = "../../packaging/chart"

// rendered are the objects of the controller's chart, by kind.
type rendered map[string][]string

// render renders the controller's chart.
func render(t *testing.T, r *release, args ...string) rendered {
	t.Helper()
	return split(r.helm(append([]string{"template", "en", controllerChart, "--namespace", "agents"}, args...)...))
}

// split sorts the objects of a manifest by kind.
func split(text string) rendered {
	out := rendered{}
	for _, object := range strings.Split(text, "\n---\n") {
		var meta metav1.TypeMeta
		if yaml.Unmarshal([]byte(object), &meta) == nil && meta.Kind != "" {
			out[meta.Kind] = append(out[meta.Kind], object)
		}
	}
	return out
}

// one is the only object of a kind.
func one[T any](t *testing.T, all rendered, kind string) (object T) {
	t.Helper()
	if len(all[kind]) != 1 {
		t.Fatalf("there are %d objects of the kind %s, want one", len(all[kind]), kind)
	}
	if err := yaml.UnmarshalStrict([]byte(all[kind][0]), &object); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return object
}

// TestControllerChart: the chart gives the controller what its guide says, and no more.
func TestControllerChart(t *testing.T) {
	r := &release{cluster: &cluster{t: t}, t: t, program: Program(t, "v4"), home: t.TempDir()}
	if out := r.helm("lint", "--strict", controllerChart); !strings.Contains(out, "0 chart(s) failed") {
		t.Errorf("helm lint says\n%s", out)
	}
	all := render(t, r)
	example, err := os.ReadFile("../../examples/controller-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := split(string(example))
	if got, want := one[rbacv1.ClusterRole](t, all, "ClusterRole"), one[rbacv1.ClusterRole](t, want, "ClusterRole"); !reflect.DeepEqual(got.Rules, want.Rules) {
		t.Errorf("the chart gives other rights than examples/controller-rbac.yaml; copy its rules to packaging/chart/files/rules.yaml\n%v\nwant\n%v", got.Rules, want.Rules)
	}
	got, lease := one[rbacv1.Role](t, all, "Role"), one[rbacv1.Role](t, want, "Role")
	if !reflect.DeepEqual(got.Rules, lease.Rules) || got.Namespace != lease.Namespace {
		t.Errorf("the chart gives other rights to leases than the example: %v in %s, want %v in %s",
			got.Rules, got.Namespace, lease.Rules, lease.Namespace)
	}
	definitionsAreThoseOfTheProgram(t, all["CustomResourceDefinition"])
	budget := one[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget")
	d := one[appsv1.Deployment](t, all, "Deployment")
	if !reflect.DeepEqual(budget.Spec.Selector, d.Spec.Selector) {
		t.Errorf("the budget is for %v, the pods are %v", budget.Spec.Selector, d.Spec.Selector)
	}
	argumentsAreKnown(t, d)

	for flag, want := range map[string]string{
		"policies.install=false,rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine,podDisruptionBudget.enabled=false,metrics.service=false": "[Deployment]",
		"metrics.serviceMonitor.enabled=true,policies.install=false": "[ClusterRole ClusterRoleBinding Deployment PodDisruptionBudget Role RoleBinding Service ServiceAccount ServiceMonitor]",
	} {
		var kinds []string
		for kind := range render(t, r, "--set", flag) {
			kinds = append(kinds, kind)
		}
		slices.Sort(kinds)
		if fmt.Sprint(kinds) != want {
			t.Errorf("with %s the kinds are %v, want %s", flag, kinds, want)
		}
	}
	monitoringIsThatOfTheExamples(t, r)
	for flag, want := range map[string]string{
		"replica=3":                       "replica",
		"replicas=many":                   "replicas",
		"controller.verbosity=9":          "verbosity",
		"controller.extraArgs[0]=workers": "extraArgs",
		"serviceAccount.create=false":     "name",
		"metrics.port=80":                 "port",
		"metrics.dashboard.enabled=maybe": "enabled",
	} {
		r.refused(want, "template", "en", controllerChart, "--set", flag)
	}
}

// monitoringIsThatOfTheExamples: alerts and the board are those that the documentation speaks of.
func monitoringIsThatOfTheExamples(t *testing.T, r *release) {
	t.Helper()
	all := render(t, r, "--set", "metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.team=edge,"+
		"metrics.dashboard.enabled=true")
	alerts, err := os.ReadFile("../../examples/rollout-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := yaml.Unmarshal(alerts, &want); err != nil {
		t.Fatal(err)
	}
	rule := one[struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              any `json:"spec"`
	}](t, all, "PrometheusRule")
	if !reflect.DeepEqual(rule.Spec, want) {
		t.Error("the chart has other alerts than examples/rollout-alerts.yaml; copy it to packaging/chart/files")
	}
	if rule.Labels["team"] != "edge" {
		t.Errorf("the alerts have the labels %v", rule.Labels)
	}
	board := one[corev1.ConfigMap](t, all, "ConfigMap")
	example, err := os.ReadFile("../../examples/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(board.Data["everynode.json"]) != strings.TrimSpace(string(example)) {
		t.Error("the chart has another board than examples/grafana-dashboard.json; copy it to packaging/chart/files")
	}
	if board.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the board has the labels %v", board.Labels)
	}
}

// TestBesideChart: beside another controller the chart gives what examples/beside-rbac.yaml says, and no more.
func TestBesideChart(t *testing.T) {
	r := &release{cluster: &cluster{t: t}, t: t, program: Program(t, "v4"), home: t.TempDir()}
	all := render(t, r, "--set", "mode=Beside,beside.leave.keepOnDelete[0]=kube-system/agent")
	example, err := os.ReadFile("../../examples/beside-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := split(string(example))
	got := one[rbacv1.ClusterRole](t, all, "ClusterRole")
	if want := one[rbacv1.ClusterRole](t, want, "ClusterRole"); !reflect.DeepEqual(got.Rules, want.Rules) {
		t.Errorf("the chart gives other rights than examples/beside-rbac.yaml; copy its rules to packaging/chart/files/beside-rules.yaml\n%v\nwant\n%v", got.Rules, want.Rules)
	}
	var rules []rbacv1.PolicyRule
	for _, text := range all["Role"] {
		role := one[rbacv1.Role](t, rendered{"Role": {text}}, "Role")
		rules = append(rules, role.Rules...)
		if want := []string{"kube-system", "agents"}[len(rules)/2-1]; role.Namespace != want {
			t.Errorf("the role %v is in %s, want %s", role.Rules, role.Namespace, want)
		}
	}
	own := one[rbacv1.Role](t, want, "Role")
	own.Rules[3].ResourceNames = []string{"en-webhook"}
	if !reflect.DeepEqual(rules, own.Rules) {
		t.Errorf("the chart gives other rights in namespaces than the example: %v, want %v", rules, own.Rules)
	}
	beside := one[appsv1.Deployment](t, all, "Deployment")
	argumentsAreKnown(t, beside)
	instead := one[appsv1.Deployment](t, render(t, r, "--namespace", "others"), "Deployment")
	for _, d := range []appsv1.Deployment{beside, instead} {
		args := d.Spec.Template.Spec.Containers[0].Args
		if !slices.Contains(args, "--leader-elect-namespace=kube-system") || strings.Contains(fmt.Sprint(args), "elect-name=") {
			t.Errorf("in namespace %s the lease is another one: %s", d.Namespace, args)
		}
	}
	ends := beside.Spec.Template.Spec.Containers[0].Lifecycle
	if ends == nil || ends.PreStop == nil || ends.PreStop.Sleep == nil || ends.PreStop.Sleep.Seconds < 5 {
		t.Error("a pod ends at once, and the API server may ask it still")
	}
	if instead.Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("a pod that nobody asks ends late")
	}
	job := one[batchv1.Job](t, all, "Job")
	argumentsAreKnown(t, appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: job.Spec.Template}})
	if args := fmt.Sprint(job.Spec.Template.Spec.Containers[0].Args); !strings.Contains(args, "--leave") || job.Annotations["helm.sh/hook"] != "pre-delete" ||
		!strings.Contains(args, "--keep-on-delete=kube-system/agent") || !strings.Contains(args, "--webhook-secret=en-webhook") {
		t.Errorf("the hook is %v, with %s", job.Annotations, args)
	}
	secret := one[corev1.Secret](t, all, "Secret")
	if secret.Name != "en-webhook" || len(secret.Data)+len(secret.StringData) != 0 {
		t.Errorf("the Secret %s has %v: an upgrade would write that again", secret.Name, secret.Data)
	}
	for flag, want := range map[string]string{
		"mode=Both": "mode", "mode=Beside,beside.port=80": "port", "mode=Beside,beside.url=http://a": "url",
		"mode=Beside,beside.leave.letItRoll[0]=agent": "letItRoll", "mode=Beside,beside.fails=true": "fails",
	} {
		r.refused(want, "template", "en", controllerChart, "--set", flag)
	}
	r.refused("mode Beside needs Kubernetes 1.33 or newer", "template", "en", controllerChart, "--set", "mode=Beside", "--kube-version", "1.32.9")
}

// definitionsAreThoseOfTheProgram compares the chart's definitions with what
// everynode controller --print-crds says.
func definitionsAreThoseOfTheProgram(t *testing.T, texts []string) {
	t.Helper()
	var printed bytes.Buffer
	if err := definitions.Print(&printed); err != nil {
		t.Fatal(err)
	}
	if packed, err := os.ReadFile(filepath.Join(controllerChart, "files/definitions.yaml")); err != nil || !bytes.Equal(packed, printed.Bytes()) {
		t.Errorf("the chart's definitions are not the program's (%v); run: bin/everynode controller --print-crds >packaging/chart/files/definitions.yaml", err)
	}
	all, err := definitions.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) != len(all) {
		t.Fatalf("the chart has %d definitions, want %d", len(texts), len(all))
	}
	for i, text := range texts {
		var got apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if got.Annotations[definitions.SchemaAnnotation] != strconv.Itoa(v1alpha1.Schema) {
			t.Errorf("%s does not say which schema it has: %v", got.Name, got.Annotations)
		}
		if got.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s goes with the chart, and all policies with it", got.Name)
		}
		if want := all[i]; got.Name != want.Name || len(got.Spec.Versions) != len(want.Spec.Versions) {
			t.Errorf("definition %d is %s, want %s", i, got.Name, want.Name)
		}
	}
}

// argumentsAreKnown has the program read the Deployment's arguments.
func argumentsAreKnown(t *testing.T, d appsv1.Deployment) {
	t.Helper()
	var said bytes.Buffer
	args := append(slices.Clone(d.Spec.Template.Spec.Containers[0].Args), "--kubeconfig=/nowhere")
	if code := cli.Execute(t.Context(), args, &said, &said); code != 1 || !strings.Contains(said.String(), "read the kubeconfig /nowhere") {
		t.Errorf("with %v the program says %q", args, &said)
	}
}

// TestControllerChartOnACluster installs the chart, and runs what its pods would run: with
// their arguments, as their account.
func TestControllerChartOnACluster(t *testing.T) {
	program := Program(t, "v4")
	on := start(t, "--daemonset-controller=false")
	r := &release{cluster: on, t: t, program: program, home: t.TempDir(),
		chart: controllerChart, name: "everynode", namespace: "agents"}
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	// The kinds are built in here.
	values := []string{"--set", "policies.install=false,image.tag=v1,image.repository=everynode.io/demo", "--set", fmt.Sprintf("metrics.port=%d", port)}
	out := r.install(append(values, "--create-namespace")...)
	if !strings.Contains(out, "--controllers=*,-daemonset-controller") {
		t.Errorf("installing does not say what else is to be done:\n%s", out)
	}
	d, err := on.Client.AppsV1().Deployments("agents").Get(t.Context(), "everynode", metav1.GetOptions{})
	if err != nil || d.Status.ReadyReplicas != 2 {
		t.Fatalf("Helm waited, and the Deployment is %+v (%v)", d.Status, err)
	}
	stop := runAsPod(r, d)
	defer stop()

	labels := map[string]string{"app": "agent"}
	daemon := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}},
	}}
	if _, err := on.Client.AppsV1().DaemonSets("default").Create(t.Context(), daemon, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	on.Eventually("the controller makes the pods", func(ctx context.Context) error {
		d, err := on.Client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && d.Status.NumberAvailable != 3 {
			err = fmt.Errorf("the status is %+v", d.Status)
		}
		return err
	})
	on.Eventually("its metrics tell of them", func(context.Context) error {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && !bytes.Contains(body, []byte("\ndaemonset_controller_pods_created_total 3\n")) {
			err = errors.New("no metric says that three pods were made")
		}
		return err
	})
	moved := append(slices.Clone(values), "--set", "lease.namespace=agents")
	r.refused("kubectl -n agents scale deployment everynode --replicas=0", append([]string{"upgrade", r.name, r.chart}, moved...)...)
	other := append(slices.Clone(values), "--set", "mode=Beside")
	r.refused("installed in mode Instead, and an upgrade does not change that", append([]string{"upgrade", r.name, r.chart},
		other...)...)
	r.upgrade(append(values, "--set", "replicas=1")...)
	r.helm("rollback", r.name, "1", "--wait", "--timeout", patience)
	r.helm("uninstall", r.name, "--wait", "--timeout", patience)
}

// runAsPod runs the program as a container of the Deployment would: with its arguments and
// the rights of its account. What it returns ends it.
func runAsPod(r *release, d *appsv1.Deployment) (stop func()) {
	r.t.Helper()
	token, err := r.Client.CoreV1().ServiceAccounts(r.namespace).CreateToken(r.t.Context(), d.Spec.Template.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: r.Config.Host, CertificateAuthorityData: r.Config.CAData, CertificateAuthority: r.Config.CAFile}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(r.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan string, 1)
	go func() {
		var said bytes.Buffer
		code := cli.Execute(ctx, append(slices.Clone(d.Spec.Template.Spec.Containers[0].Args), "--kubeconfig="+path), &said, &said)
		if code != 0 {
			done <- fmt.Sprintf("code %d: %s", code, &said)
		}
		close(done)
	}()
	return func() {
		cancel()
		if said := <-done; said != "" {
			r.t.Errorf("the controller ended with %s", said)
		}
	}
}
