package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// accounts holds accounts by name; calls counts down until they appear.
type accounts struct {
	byName map[string]*corev1.ServiceAccount
	late   int
	err    error
}

func (a *accounts) GetServiceAccount(_ context.Context, _, name string) (*corev1.ServiceAccount, error) {
	if a.err != nil {
		return nil, a.err
	}
	if account := a.byName[name]; account != nil && a.late == 0 {
		return account, nil
	}
	a.late = max(0, a.late-1)
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
}

type fixedNames struct{ n int }

func (f *fixedNames) GenerateName(base string) string { f.n++; return fmt.Sprintf("%s%d", base, f.n) }

// instantly is a clock whose timers fire at once.
type instantly struct{ clock.Clock }

func (instantly) After(time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	c <- time.Time{}
	return c
}

func newPlugin(a *accounts) *Plugin {
	p := New(a)
	p.names, p.clock = &fixedNames{}, instantly{clocktesting.NewFakeClock(time.Time{})}
	return p
}

func attributes(pod *corev1.Pod, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), subresource, admission.Create, nil, false, nil)
}

func account(name string, automount *bool, secrets ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, AutomountServiceAccountToken: automount}
	for _, secret := range secrets {
		a.ImagePullSecrets = append(a.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	return a
}

// describe writes volumes and who mounts what.
func describe(pod *corev1.Pod) string {
	var parts []string
	for _, v := range pod.Spec.Volumes {
		parts = append(parts, v.Name)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for _, m := range c.VolumeMounts {
				parts = append(parts, c.Name+":"+m.Name)
			}
		}
	}
	return strings.Join(parts, " ")
}

func TestMount(t *testing.T) {
	stock := map[string]*corev1.ServiceAccount{
		"default": account("default", nil, "pull"), "quiet": account("quiet", new(false)),
	}
	own := corev1.VolumeMount{Name: "own", MountPath: MountPath}
	containers := []corev1.Container{{Name: "a"}, {Name: "b"}}
	cases := []struct {
		name string
		spec corev1.PodSpec
		want string
	}{
		{"all containers", corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}}, Containers: containers}, "kube-api-access-1 i:kube-api-access-1 a:kube-api-access-1 b:kube-api-access-1"},
		{"one mounts its own", corev1.PodSpec{Containers: []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{own}}, {Name: "b"}}}, "kube-api-access-1 a:own b:kube-api-access-1"},
		{"all mount their own", corev1.PodSpec{Containers: []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{own}}}}, "a:own"},
		{"pod does not want it", corev1.PodSpec{Containers: containers, AutomountServiceAccountToken: new(false)}, ""},
		{"account does not want it", corev1.PodSpec{Containers: containers, ServiceAccountName: "quiet"}, ""},
		{"pod beats account", corev1.PodSpec{Containers: containers[:1], ServiceAccountName: "quiet", AutomountServiceAccountToken: new(true)}, "kube-api-access-1 a:kube-api-access-1"},
		{"there already", corev1.PodSpec{Containers: containers[:1], Volumes: []corev1.Volume{{Name: "kube-api-access-x"}}}, "kube-api-access-x a:kube-api-access-x"},
	}
	for _, c := range cases {
		pod := &corev1.Pod{Spec: *c.spec.DeepCopy()}
		if err := newPlugin(&accounts{byName: stock}).Admit(t.Context(), attributes(pod, ""), nil); err != nil {
			t.Fatal(err)
		}
		if got := describe(pod); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestDefaultAccountAndTokenVolume(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	plugin := newPlugin(&accounts{byName: map[string]*corev1.ServiceAccount{"default": account("default", nil, "pull")}})
	if err := plugin.Admit(t.Context(), attributes(pod, ""), nil); err != nil {
		t.Fatal(err)
	}
	s := pod.Spec
	if s.ServiceAccountName != "default" || s.DeprecatedServiceAccount != "default" || len(s.ImagePullSecrets) != 1 {
		t.Errorf("account %q %q, pull secrets %v", s.ServiceAccountName, s.DeprecatedServiceAccount, s.ImagePullSecrets)
	}
	p := s.Volumes[0].Projected
	if *p.DefaultMode != 0o644 || p.Sources[0].ServiceAccountToken.Path != "token" || *p.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 ||
		p.Sources[1].ConfigMap.Name != "kube-root-ca.crt" || p.Sources[1].ConfigMap.Items[0].Path != "ca.crt" ||
		p.Sources[2].DownwardAPI.Items[0].FieldRef.FieldPath != "metadata.namespace" {
		t.Errorf("volume %v", p)
	}
	if mount := s.Containers[0].VolumeMounts[0]; !mount.ReadOnly || mount.MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		t.Errorf("mount %v", mount)
	}
	if err := plugin.Validate(t.Context(), attributes(pod, ""), nil); err != nil {
		t.Errorf("the result is not valid: %v", err)
	}
}

func TestMissingAccount(t *testing.T) {
	late := map[string]*corev1.ServiceAccount{"default": account("default", nil), "late": account("late", nil)}
	cases := []struct {
		name     string
		accounts *accounts
		account  string
		forbid   bool
		says     string
	}{
		{"default comes soon", &accounts{byName: late, late: 5}, "", false, ""},
		{"default never comes", &accounts{}, "", true, `error looking up service account ns/default: serviceaccounts "default" not found`},
		{"others are not waited for", &accounts{byName: late, late: 1}, "late", true, `service account ns/late`},
		{"a name that no account has", &accounts{err: errors.New("asked")}, "../x", true,
			`pods "p" is forbidden: error looking up service account ns/../x: invalid resource name "../x": [may not contain '/']`},
		{"storage is broken", &accounts{err: errors.New("disk")}, "x", false, "disk"},
	}
	for _, c := range cases {
		pod := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: c.account}}
		err := newPlugin(c.accounts).Admit(t.Context(), attributes(pod, ""), nil)
		if (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) || apierrors.IsForbidden(err) != c.forbid {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func TestMirrorPodsGetNoSecrets(t *testing.T) {
	secret := corev1.VolumeProjection{Secret: &corev1.SecretProjection{}}
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}
	volume := func(source corev1.VolumeSource) []corev1.Volume { return []corev1.Volume{{VolumeSource: source}} }
	fromKey := corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}
	cases := map[string]struct {
		spec corev1.PodSpec
		says string
	}{
		"plain":       {corev1.PodSpec{Volumes: volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}})}, ""},
		"account":     {corev1.PodSpec{ServiceAccountName: "admin"}, "may not reference service accounts"},
		"volume":      {corev1.PodSpec{Volumes: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})}, "may not reference secrets"},
		"projection":  {corev1.PodSpec{Volumes: volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{secret}}})}, "may not reference secrets"},
		"token":       {corev1.PodSpec{Volumes: volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{token}}})}, "ServiceAccountToken volume projections"},
		"env":         {corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "a", Value: "b"}, fromKey}}}}, "may not reference secrets"},
		"env of init": {corev1.PodSpec{InitContainers: []corev1.Container{{Env: []corev1.EnvVar{fromKey}}}}, "may not reference secrets"},
		"env from":    {corev1.PodSpec{Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}}}}, "may not reference secrets"},
		"pull secret": {corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "x"}}}, "may not reference secrets"},
	}
	for name, c := range cases {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}, Spec: c.spec}
		plugin := newPlugin(&accounts{byName: map[string]*corev1.ServiceAccount{"default": account("default", nil)}})
		for _, check := range []func(context.Context, admission.Attributes, admission.ObjectInterfaces) error{plugin.Admit, plugin.Validate} {
			err := check(t.Context(), attributes(pod, ""), nil)
			if (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
		}
		if pod.Spec.ServiceAccountName != c.spec.ServiceAccountName {
			t.Errorf("%s: a mirror pod was changed to account %q", name, pod.Spec.ServiceAccountName)
		}
	}
}
