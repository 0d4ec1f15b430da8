package stolen

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// make stores an object and remembers its UID.
func (y *yard) make(t *testing.T, obj runtime.Object) {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	o := obj.(metav1.Object)
	plural := map[string]string{"Endpoints": "endpoints"}[kinds[0].Kind]
	if plural == "" {
		plural = lower(kinds[0].Kind) + "s"
	}
	path := "/api/v1"
	if kinds[0].Group != "" {
		path = "/apis/" + kinds[0].GroupVersion().String()
	}
	if o.GetNamespace() != "" {
		path += "/namespaces/" + o.GetNamespace()
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	body, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := y.admin.CoreV1().RESTClient().Post().AbsPath(path, plural).Body(body).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("make %s %s: %v", kinds[0].Kind, o.GetName(), err)
	}
	var stored metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &stored); err != nil {
		t.Fatal(err)
	}
	y.uids[kinds[0].Kind+"/"+o.GetName()] = string(stored.UID)
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// fill stores what is asked about.
func (y *yard) fill(t *testing.T) {
	for _, n := range []string{"yard-a", "yard-b"} {
		y.make(t, &corev1.Namespace{ObjectMeta: meta("", n)})
		y.make(t, &corev1.ServiceAccount{ObjectMeta: meta(n, "default"), AutomountServiceAccountToken: new(false)})
	}
	y.make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "yard-r", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
	for _, n := range []string{"yard-1", "yard-2"} {
		node := &corev1.Node{ObjectMeta: meta("", n)}
		node.Labels = map[string]string{"node-restriction.kubernetes.io/team": "a", "kubernetes.io/hostname": n}
		node.Annotations = map[string]string{"yard.example.com/note": "x"}
		node.Spec.Taints = []corev1.Taint{{Key: "yard.example.com/own", Effect: corev1.TaintEffectNoSchedule}}
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: amount("4")}
		node.Status.Allocatable = node.Status.Capacity
		y.make(t, node)
		y.make(t, &coordinationv1.Lease{ObjectMeta: meta("kube-node-lease", n), Spec: coordinationv1.LeaseSpec{HolderIdentity: new(n)}})
		y.make(t, &storagev1.CSINode{ObjectMeta: meta("", n)})
	}
	y.make(t, &coordinationv1.Lease{ObjectMeta: meta("kube-system", "yard-lease")})
	driver := &storagev1.CSIDriver{ObjectMeta: meta("", "yard.example.com")}
	driver.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "csi-audience"}}
	driver.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	y.make(t, driver)
	y.fillUsed(t)
	for _, p := range y.pods() {
		y.make(t, p)
	}
	grace := int64(30)
	if err := y.admin.CoreV1().Pods("yard-a").Delete(t.Context(), "own-del", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	y.report(t, "pods/own-done", `{"status":{"phase":"Succeeded"}}`)
	y.report(t, "pods/own-guarded", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	y.make(t, &policyv1.PodDisruptionBudget{ObjectMeta: meta("yard-a", "guard"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "own-guarded"}}}})
	y.report(t, "poddisruptionbudgets/guard", `{"status":{"observedGeneration":1,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}`)
	y.make(t, csrFor(t, "csr: yard-id-node1", "yard-1"))
	y.fillRoles(t)
}

// fillRoles lets somebody read all that is about pods, and somebody else use them.
func (y *yard) fillRoles(t *testing.T) {
	verbs := map[string][]string{"reader": {"get", "list", "watch"}, "user": {"get", "create"}}
	for name, verbs := range verbs {
		y.make(t, &rbacv1.ClusterRole{ObjectMeta: meta("", "yard-"+name), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods", "pods/exec", "pods/attach", "pods/portforward"}, Verbs: verbs}}})
		y.make(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "yard-"+name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "yard-" + name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "yard-" + name}}})
	}
}

// fillUsed stores what pods refer to.
func (y *yard) fillUsed(t *testing.T) {
	for _, n := range []string{"vol", "env", "envfrom", "proj", "pull", "init", "opt", "csi", "flex", "del", "done", "other", "unbound", "unused"} {
		y.make(t, &corev1.Secret{ObjectMeta: meta("yard-a", "sec-"+n)})
		y.make(t, &corev1.ConfigMap{ObjectMeta: meta("yard-a", "cm-"+n)})
	}
	y.make(t, &corev1.Secret{ObjectMeta: meta("yard-b", "sec-vol")})
	for _, n := range []string{"own", "other", "done", "unbound", "second"} {
		y.make(t, &corev1.ServiceAccount{ObjectMeta: meta("yard-a", "sa-"+n), AutomountServiceAccountToken: new(false)})
	}
	y.make(t, &corev1.Service{ObjectMeta: meta("yard-a", "svc"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	y.make(t, &corev1.Endpoints{ObjectMeta: meta("yard-a", "ep")}) //nolint:staticcheck // it is served
	y.make(t, &corev1.Event{ObjectMeta: meta("yard-a", "ev"), InvolvedObject: corev1.ObjectReference{Namespace: "yard-a"}})
}

// report sets the status of something in yard-a.
func (y *yard) report(t *testing.T, what, patch string) {
	t.Helper()
	path := "/api/v1"
	if !strings.HasPrefix(what, "pods/") {
		path = "/apis/policy/v1"
	}
	err := y.admin.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path, "namespaces/yard-a", what, "status").Body([]byte(patch)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
}

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// podOf is an ordinary pod.
func podOf(node, name, account string, sources ...corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta("yard-a", name)}
	p.Labels = map[string]string{"app": name}
	p.Spec = corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	for i, s := range sources {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: s})
	}
	return p
}

func secretVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
}

func projected(sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
}

func tokenFor(audience string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token-" + audience}}
}

func envFrom(secret string) corev1.EnvVar {
	return corev1.EnvVar{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local(secret), Key: "k"}}}
}

// rich is a pod that uses everything that can be used.
func rich() *corev1.Pod {
	p := podOf("yard-1", "own", "sa-own", secretVolume("sec-vol"),
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("cm-vol")}},
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec-opt", Optional: new(true)}},
		projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: local("sec-proj")}},
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("cm-proj")}}, tokenFor("in-pod"), tokenFor("second")),
		corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "yard.example.com", NodePublishSecretRef: new(local("sec-csi"))}},
		corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/flex", SecretRef: new(local("sec-flex"))}})
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{local("sec-pull")}
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", Env: []corev1.EnvVar{envFrom("sec-init")}}}
	p.Spec.Containers[0].Env = []corev1.EnvVar{envFrom("sec-env"), {Name: "C", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("cm-env"), Key: "k"}}}}
	p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("sec-envfrom")}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("cm-envfrom")}}}
	return p
}

func (y *yard) pods() []*corev1.Pod {
	configMap := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local(name)}}
	}
	leaving := podOf("yard-1", "own-del", "default", secretVolume("sec-del"), configMap("cm-del"))
	leaving.Finalizers = []string{"yard.example.com/wait"}
	elsewhere := podOf("yard-1", "own-b", "default")
	elsewhere.Namespace = "yard-b"
	return []*corev1.Pod{
		rich(), leaving, elsewhere,
		podOf("yard-1", "own-second", "sa-second", secretVolume("sec-env")),
		podOf("yard-1", "own-done", "sa-done", secretVolume("sec-done"), configMap("cm-done")),
		podOf("yard-1", "own-evict", "default"), podOf("yard-1", "own-guarded", "default"),
		podOf("yard-2", "other", "sa-other", secretVolume("sec-other"), configMap("cm-other")),
		podOf("", "unbound", "sa-unbound", secretVolume("sec-unbound")),
		y.mirror("yard-1", "mir-own"), y.mirror("yard-2", "mir-other"),
	}
}

// mirror is what a node shows of a static pod.
func (y *yard) mirror(node, name string) *corev1.Pod {
	p := podOf(node, name, "")
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(y.uids["Node/"+node]), Controller: new(true)}}
	return p
}

// steal makes the credentials.
func (y *yard) steal(t *testing.T) map[string]*thief {
	t.Helper()
	const id, secret = "yardaa", "0123456789abcdef"
	join := &corev1.Secret{ObjectMeta: meta("kube-system", "bootstrap-token-"+id), Type: "bootstrap.kubernetes.io/token", StringData: map[string]string{
		"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
	y.make(t, join)
	ask := func(audiences ...string) string {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		got, err := y.admin.CoreV1().ServiceAccounts("yard-a").CreateToken(context.Background(), "default", r, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Token
	}
	token := ask()
	const none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6eWFyZC1hOmRlZmF1bHQifQ."
	out := map[string]*thief{
		"node1":     y.withCertificate(t, "system:node:yard-1", "system:nodes"),
		"ghost":     y.withCertificate(t, "system:node:yard-9", "system:nodes"),
		"emptyname": y.withCertificate(t, "system:node:", "system:nodes"),
		"nogroup":   y.withCertificate(t, "system:node:yard-1"),
		"noname":    y.withCertificate(t, "yard-somebody", "system:nodes"),
		"reader":    y.withCertificate(t, "yard-reader"), "user": y.withCertificate(t, "yard-user"),
		"sa": y.withToken(token), "anon": y.withToken(""), "boot": y.withToken(id + "." + secret),
		"boot-wrong": y.withToken(id + ".0123456789abcdee"), "boot-unknown": y.withToken("yardzz." + secret),
		"boot-hash": y.withToken(id + "." + secret + "." + y.bundle.CAHash()),
		"tok-aud":   y.withToken(ask("elsewhere")), "tok-garbage": y.withToken("garbage"), "tok-none-alg": y.withToken(none),
		"tok-changed": y.withToken(token[:len(token)-6] + "AAAAAA"), "tok-long": y.withToken(token + longTail),
	}
	// Join tokens that are expired, for signing only, of another type or kind.
	for name, change := range map[string]func(*corev1.Secret){
		"boot-cc": func(s *corev1.Secret) { s.StringData["expiration"] = "2020-01-01T00:00:00Z" },
		"boot-ee": func(s *corev1.Secret) { delete(s.StringData, "usage-bootstrap-authentication") },
		"boot-ff": func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"boot-gg": func(s *corev1.Secret) { s.StringData["auth-extra-groups"] = "system:masters" },
	} {
		s := join.DeepCopy()
		other := "yard" + name[len(name)-2:]
		s.Name, s.StringData["token-id"] = "bootstrap-token-"+other, other
		change(s)
		y.make(t, s)
		out[name] = y.withToken(other + "." + secret)
	}
	return out
}
