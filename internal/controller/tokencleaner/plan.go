package tokencleaner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	tokenType     = corev1.SecretTypeBootstrapToken
	expirationKey = "expiration"
)

// expired says whether the Secret is a join token that has ended. One without an end never does; one whose end cannot
// be read is refused by the API server as a token, and is kept for somebody to look at.
func expired(secret *corev1.Secret, now time.Time) bool {
	text, ok := secret.Data[expirationKey]
	if secret.Type != tokenType || !ok {
		return false
	}
	end, err := time.Parse(time.RFC3339, string(text))
	return err == nil && !now.Before(end)
}
