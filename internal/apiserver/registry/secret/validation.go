package secret

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

var data = field.NewPath("data")

// Validate checks a secret, metadata aside: its keys must do as file names, it
// must not be too big, and it has what its type asks for.
func Validate(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, key := range enough.Each(slices.Sorted(maps.Keys(s.Data)), &errs) {
		for _, m := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(data.Key(key), key, m))
		}
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, validateType(s)...)
}

func validateType(s *corev1.Secret) field.ErrorList {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(
				field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "",
			)}
		}
	case corev1.SecretTypeDockercfg:
		return jsonKey(s, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return jsonKey(s, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			return field.ErrorList{
				field.Required(data.Key(corev1.BasicAuthUsernameKey), ""),
				field.Required(data.Key(corev1.BasicAuthPasswordKey), ""),
			}
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		var errs field.ErrorList
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
		return errs
	}
	return nil
}

// jsonKey checks that a key is there and holds JSON.
func jsonKey(s *corev1.Secret, key string) field.ErrorList {
	raw, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(data.Key(key), "")}
	}
	var parsed map[string]any
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return field.ErrorList{field.Invalid(data.Key(key), "<secret contents redacted>", fmt.Sprint(err))}
	}
	return nil
}
