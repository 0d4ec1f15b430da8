package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

const modeRange = "must be a number between 0 and 0777 (octal), both inclusive"

func fileMode(path *field.Path, mode *int32) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, modeRange)}
	}
	return nil
}

// validateItems checks which keys become which files.
func validateItems(items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range enough.Each(items, &errs) {
		at := path.Index(i)
		errs = append(errs, check.Required(at.Child("key"), item.Key)...)
		errs = append(errs, filePath(at.Child("path"), item.Path)...)
		errs = append(errs, fileMode(at.Child("mode"), item.Mode)...)
	}
	return errs
}

// filePath checks the place of a file in its volume. Names that start with two
// dots are the node's own, for replacing all files at once.
func filePath(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := check.BelowRoot(path, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		errs = append(errs, field.Invalid(path, value, "must not start with '..'"))
	}
	return errs
}

func validateFieldFile(file *corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	errs := filePath(path.Child("path"), file.Path)
	switch {
	case file.FieldRef != nil:
		errs = append(errs, validateFieldRef(file.FieldRef, fileFields, path.Child("fieldRef"))...)
		if file.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(path, "resource",
				"fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case file.ResourceFieldRef != nil:
		errs = append(errs, validateResourceRef(file.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
	}
	return append(errs, fileMode(path.Child("mode"), file.Mode)...)
}

func validateProjected(p *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	errs := fileMode(path.Child("defaultMode"), p.DefaultMode)
	files := projectedFiles{path: path, taken: sets.New[string]()}
	for i := range enough.Each(p.Sources, &files.errs) {
		files.source(&p.Sources[i], path.Child("sources").Index(i))
	}
	return append(errs, files.errs...)
}

// projectedFiles checks the sources of one volume, whose files must not collide.
type projectedFiles struct {
	path  *field.Path
	taken sets.Set[string]
	errs  field.ErrorList
}

func (f *projectedFiles) add(errs ...*field.Error) { f.errs = append(f.errs, errs...) }

// claim notes that a file is made, and complains if it is made twice.
func (f *projectedFiles) claim(file, source string) {
	if file == "" {
		return
	}
	if f.taken.Has(file) {
		if source == "" {
			f.add(field.Invalid(f.path, file, "conflicting duplicate paths"))
		} else {
			f.add(field.Invalid(f.path, source, "conflicting duplicate paths"))
		}
	}
	f.taken.Insert(file)
}

func (f *projectedFiles) source(s *corev1.VolumeProjection, path *field.Path) {
	n := 0
	try := func(name string, set bool, check func(at *field.Path)) {
		switch {
		case !set:
		case n > 0:
			f.add(field.Forbidden(path.Child(name), "may not specify more than 1 volume type"))
		default:
			n++
			check(path.Child(name))
		}
	}
	try("secret", s.Secret != nil, func(at *field.Path) { f.keys(s.Secret.Name, s.Secret.Items, at) })
	try("configMap", s.ConfigMap != nil, func(at *field.Path) { f.keys(s.ConfigMap.Name, s.ConfigMap.Items, at) })
	try("downwardAPI", s.DownwardAPI != nil, func(at *field.Path) {
		for i := range enough.Each(s.DownwardAPI.Items, &f.errs) {
			item := &s.DownwardAPI.Items[i]
			f.add(validateFieldFile(item, at)...)
			f.claim(item.Path, "")
		}
	})
	try("serviceAccountToken", s.ServiceAccountToken != nil, func(at *field.Path) { f.token(s.ServiceAccountToken, at) })
	try("clusterTrustBundle", s.ClusterTrustBundle != nil,
		func(at *field.Path) { f.trustBundle(s.ClusterTrustBundle, at) })
	try("podCertificate", s.PodCertificate != nil, func(at *field.Path) { f.certificate(s.PodCertificate, at) })
}

func (f *projectedFiles) keys(name string, items []corev1.KeyToPath, path *field.Path) {
	f.add(check.Required(path.Child("name"), name)...)
	f.add(validateItems(items, path.Child("items"))...)
	for _, item := range enough.Each(items, &f.errs) {
		f.claim(item.Path, name)
	}
}

func (f *projectedFiles) token(t *corev1.ServiceAccountTokenProjection, path *field.Path) {
	// Kubernetes notes no path of a token, so the last of several files of that path counts.
	at := path.Child("expirationSeconds")
	const shortest, longest = 10 * 60, 1 << 32
	if v := t.ExpirationSeconds; v != nil {
		switch {
		case *v < shortest:
			f.add(field.Invalid(at, *v, "may not specify a duration less than 10 minutes"))
		case *v > longest:
			f.add(field.Invalid(at, *v, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	f.add(filePath(f.path.Child("path"), t.Path)...)
}

func (f *projectedFiles) trustBundle(b *corev1.ClusterTrustBundleProjection, path *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		f.add(field.Invalid(path, b, "only one of name and signerName may be used"))
	case b.Name == nil && b.SignerName == nil:
		f.add(field.Required(path, "either name or signerName must be specified"))
	case b.Name != nil && *b.Name == "":
		f.add(field.Required(path.Child("name"), "must be a valid object name"))
	}
	f.add(filePath(path.Child("path"), b.Path)...)
	f.claim(b.Path, "")
}

func (f *projectedFiles) certificate(c *corev1.PodCertificateProjection, path *field.Path) {
	f.add(check.Required(path.Child("signerName"), c.SignerName)...)
	f.add(check.Supported(path.Child("keyType"), c.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521",
		"ED25519")...)
	for _, file := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath",
			c.CertificateChainPath},
	} {
		if file.path != "" {
			f.add(check.BelowRoot(path.Child(file.name), file.path)...)
			f.claim(file.path, "")
		}
	}
	if c.CredentialBundlePath == "" && c.KeyPath == "" && c.CertificateChainPath == "" {
		f.add(field.Required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}
