package ground

import restclient "k8s.io/client-go/rest"

// Account is that of a control loop.
func Account(name string) restclient.ImpersonationConfig {
	return restclient.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
}
