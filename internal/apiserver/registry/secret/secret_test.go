package secret

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestText(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"a": []byte("old"), "b": []byte("kept")}, StringData: map[string]string{"a": "new"}}
	SetDefaults(s)
	if string(s.Data["a"]) != "new" || string(s.Data["b"]) != "kept" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("got %+v", s)
	}
}

func TestTypes(t *testing.T) {
	for name, c := range map[string]struct {
		secret corev1.Secret
		want   []string
	}{
		"opaque":   {corev1.Secret{Type: "Opaque"}, nil},
		"own type": {corev1.Secret{Type: "example.com/x"}, nil},
		"tls": {corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": nil}},
			[]string{"data[tls.key]: Required value"}},
		"ssh":   {corev1.Secret{Type: corev1.SecretTypeSSHAuth}, []string{"data[ssh-privatekey]: Required value"}},
		"basic": {corev1.Secret{Type: corev1.SecretTypeBasicAuth}, []string{"data[username]: Required value", "data[password]: Required value"}},
		"docker": {corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{".dockerconfigjson": []byte("x")}},
			[]string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'x' looking for beginning of value`}},
		"token":   {corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}, []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		"big":     {corev1.Secret{Type: "Opaque", Data: map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)}}, []string{"data: Too long: may not be more than 1048576 bytes"}},
		"bad key": {corev1.Secret{Type: "Opaque", Data: map[string][]byte{"..": nil}}, []string{`data[..]: Invalid value: "..": must not be '..'`}},
	} {
		errs := Validate(&c.secret)
		if len(errs) != len(c.want) {
			t.Errorf("%s: got %v, want %v", name, errs, c.want)
			continue
		}
		for i, err := range errs {
			if err.Error() != c.want[i] {
				t.Errorf("%s: got %s, want %s", name, err, c.want[i])
			}
		}
	}
}

func TestImmutable(t *testing.T) {
	old := &corev1.Secret{Type: "Opaque", Immutable: ptr.To(true), Data: map[string][]byte{"a": []byte("1")}}
	s := old.DeepCopy()
	s.Data["a"], s.Immutable = []byte("2"), nil
	errs := ValidateUpdate(s, old)
	want := []string{"immutable: Forbidden: field is immutable when `immutable` is set", "data: Forbidden: field is immutable when `immutable` is set"}
	if len(errs) != 2 || errs[0].Error() != want[0] || errs[1].Error() != want[1] {
		t.Errorf("got %v, want %v", errs, want)
	}
	changed := &corev1.Secret{Type: corev1.SecretTypeSSHAuth, Data: map[string][]byte{"ssh-privatekey": []byte("k")}}
	if errs := ValidateUpdate(changed, &corev1.Secret{Type: "Opaque"}); len(errs) != 1 || errs[0].Field != "type" {
		t.Errorf("changed type: got %v", errs)
	}
}

func TestPairWarning(t *testing.T) {
	s := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil}}
	if got := warnings(s); len(got) != 1 || got[0] != "tls: failed to find any PEM data in certificate input" {
		t.Errorf("an empty pair: %q", got)
	}
	s.Type = corev1.SecretTypeOpaque
	if got := warnings(s); len(got) > 0 {
		t.Errorf("another type: %q", got)
	}
}

// Manifests of before pods had tokens of their own bring a Secret that a token is to be put into.
func TestTokenWarning(t *testing.T) {
	s := &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "prometheus"}
	if got := warnings(s); len(got) != 1 || !strings.HasSuffix(got[0], "kubectl create token prometheus") {
		t.Errorf("warnings of a Secret without a token: %q", got)
	}
	s.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte("brought along")}
	if got := warnings(s); len(got) > 0 {
		t.Errorf("warnings of one that brings its token: %q", got)
	}
}
