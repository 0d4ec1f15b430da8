package podspec

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

var (
	envFields = sets.New("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	fileFields = sets.New("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
	// podFields are the fields of a pod that have a name for a container's environment and files.
	podFields = envFields.Union(fileFields).Union(sets.New("spec.restartPolicy", "spec.schedulerName", "status.phase"))

	resourceFields = sets.New("limits.cpu", "limits.memory", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "requests.ephemeral-storage")
)

func (p containerChecks) env(env []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range enough.Each(env, &errs) {
		at := path.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, check.Invalid(at.Child("name"), e.Name, utilvalidation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom != nil {
			errs = append(errs, p.valueFrom(&e, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func (p containerChecks) valueFrom(e *corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	from := e.ValueFrom
	if r := from.FieldRef; r != nil {
		sources++
		errs = append(errs, validateFieldRef(r, envFields, path.Child("fieldRef"))...)
	}
	if r := from.ResourceFieldRef; r != nil {
		sources++
		errs = append(errs, validateResourceRef(r, false, path.Child("resourceFieldRef"))...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("secretKeyRef"))...)
	}
	if r := from.FileKeyRef; r != nil {
		sources++
		errs = append(errs, p.fileKey(r, path.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case e.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func (p containerChecks) fileKey(r *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.VolumeName == "" {
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	} else if source, ok := p.volumes[r.VolumeName]; !ok {
		errs = append(errs, field.NotFound(path.Child("volumeName"), r.VolumeName))
	} else if source.EmptyDir == nil {
		errs = append(errs, field.Invalid(path.Child("volumeName"), r.VolumeName, "volume source must be an emptyDir"))
	}
	if r.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	} else {
		errs = append(errs, check.BelowRoot(path.Child("path"), r.Path)...)
	}
	if r.Key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, check.Invalid(path.Child("key"), r.Key, utilvalidation.IsRelaxedEnvVarName(r.Key))...)
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := check.DNSSubdomain(path.Child("name"), name)
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, check.Invalid(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))...)
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range enough.Each(sources, &errs) {
		at := path.Index(i)
		if s.Prefix != "" {
			errs = append(errs, check.Invalid(at.Child("prefix"), s.Prefix, utilvalidation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		n := 0
		if s.ConfigMapRef != nil {
			n++
			errs = append(errs, check.RequiredSubdomain(at.Child("configMapRef", "name"), s.ConfigMapRef.Name)...)
		}
		if s.SecretRef != nil {
			n++
			errs = append(errs, check.RequiredSubdomain(at.Child("secretRef", "name"), s.SecretRef.Name)...)
		}
		switch {
		case n == 0:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case n > 1:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

// validateFieldRef checks a reference to one of the pod's own fields.
func validateFieldRef(r *corev1.ObjectFieldSelector, allowed sets.Set[string], path *field.Path) field.ErrorList {
	if r.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	at := path.Child("fieldPath")
	if r.FieldPath == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if r.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(at, r.FieldPath,
			"error converting fieldPath: unsupported pod version: "+r.APIVersion)}
	}
	name, key, keyed := subscript(r.FieldPath)
	if r.FieldPath == "spec.host" {
		name = "spec.nodeName"
	}
	if !podFields.Has(name) || keyed && name != "metadata.labels" && name != "metadata.annotations" {
		return field.ErrorList{field.Invalid(at, r.FieldPath,
			"error converting fieldPath: field label not supported: "+r.FieldPath)}
	}
	switch {
	case keyed && name == "metadata.annotations":
		return check.LabelName(path, strings.ToLower(key))
	case keyed:
		return check.LabelName(path, key)
	}
	return supportedOf(at, name, allowed)
}

func supportedOf(path *field.Path, value string, allowed sets.Set[string]) field.ErrorList {
	if allowed.Has(value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, sets.List(allowed))}
}

// subscript splits "metadata.labels['key']".
func subscript(path string) (name, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	name, key, ok = strings.Cut(rest, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}

// validateResourceRef checks a reference to a container's resources. A file,
// unlike a variable, has to say whose.
func validateResourceRef(r *corev1.ResourceFieldSelector, inFile bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case inFile && r.ContainerName == "":
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), ""))
	case strings.HasPrefix(r.Resource, "requests.hugepages-"), strings.HasPrefix(r.Resource, "limits.hugepages-"):
	default:
		errs = append(errs, supportedOf(path.Child("resource"), r.Resource, resourceFields)...)
	}
	return append(errs, validateDivisor(r, path)...)
}

var (
	cpuDivisors    = sets.New("1m", "1")
	memoryDivisors = sets.New("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
)

func validateDivisor(r *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	unset := r.Divisor
	if unset.IsZero() {
		return nil
	}
	divisor, at := r.Divisor.String(), path.Child("divisor")
	_, name, _ := strings.Cut(r.Resource, ".")
	switch {
	case name == "cpu" && !cpuDivisors.Has(divisor):
		return field.ErrorList{field.Invalid(at, r.Resource,
			"only divisor's values 1m and 1 are supported with the cpu resource")}
	case (name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, "hugepages-")) &&
		!memoryDivisors.Has(divisor):
		what := strings.TrimSuffix(strings.ReplaceAll(name, "-", " "), " ")
		if strings.HasPrefix(name, "hugepages-") {
			what = "hugepages"
		}
		return field.ErrorList{field.Invalid(at, r.Resource, fmt.Sprintf(
			"only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the %s resource",
			what))}
	}
	return nil
}
