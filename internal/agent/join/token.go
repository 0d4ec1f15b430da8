package join

import (
	"errors"
	"strings"
)

// Token is what a node needs to know to join a cluster.
type Token struct {
	// ID and Secret are shown to the server; the ID is public.
	ID, Secret string
	// CAHash is the lowercase hex SHA-256 of the DER form of the cluster's CA certificate.
	CAHash string
}

// ParseToken reads ID.SECRET.CAHASH. Errors say what is wrong and never show the secret.
func ParseToken(s string) (Token, error) {
	const lower, hex = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdef0123456789"
	parts := strings.Split(strings.TrimSpace(s), ".")
	if len(parts) != 3 {
		return Token{}, errors.New("join token: expected three parts, ID.SECRET.CAHASH, separated by dots")
	}
	switch t := (Token{ID: parts[0], Secret: parts[1], CAHash: parts[2]}); {
	case !made(t.ID, 6, lower):
		return Token{}, errors.New("join token: the first part must be 6 characters of a-z and 0-9")
	case !made(t.Secret, 16, lower):
		return Token{}, errors.New("join token: the second part must be 16 characters of a-z and 0-9")
	case !made(t.CAHash, 64, hex):
		return Token{}, errors.New("join token: the third part must be 64 characters of a-f and 0-9")
	default:
		return t, nil
	}
}

// made reports whether s is made of n characters of alphabet.
func made(s string, n int, alphabet string) bool {
	return len(s) == n && strings.Trim(s, alphabet) == ""
}

// bearer is the part that is sent to the server.
func (t Token) bearer() string { return t.ID + "." + t.Secret }
