package authn

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Another issuer makes nobody a member of the cluster's own groups, or one of its own users.
func TestOthersNameNobodyOfTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		who user.DefaultInfo
		ok  bool
	}{
		"a person":             {user.DefaultInfo{Name: "ann", Groups: []string{"ops"}}, true},
		"a person of prefixes": {user.DefaultInfo{Name: "corp:system:x", Groups: []string{"corp:system:masters"}}, true},
		"a control loop":       {user.DefaultInfo{Name: "system:kube-scheduler"}, false},
		"an account":           {user.DefaultInfo{Name: "system:serviceaccount:kube-system:x"}, false},
		"an administrator":     {user.DefaultInfo{Name: "ann", Groups: []string{"ops", "system:masters"}}, false},
		"a node":               {user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes"}}, false},
	} {
		accepts := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &c.who}, true, nil
		})
		response, ok, err := strangers{accepts}.AuthenticateToken(t.Context(), "x")
		if ok != c.ok || (err == nil) != c.ok || (response != nil) != c.ok {
			t.Errorf("%s: %v, %v, %v", name, response, ok, err)
		}
	}
}
