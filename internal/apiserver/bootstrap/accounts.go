package bootstrap

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authuser "k8s.io/apiserver/pkg/authentication/user"
)

// ControllerAccount is who a control loop is towards the API: the service account
// of its name in kube-system, as with Kubernetes' own controllers.
func ControllerAccount(name string) authuser.Info {
	return account(
		serviceaccount.MakeUsername(metav1.NamespaceSystem, name), serviceaccount.MakeGroupNames(metav1.NamespaceSystem)...,
	)
}

// SchedulerAccount is who the scheduler is.
func SchedulerAccount() authuser.Info { return account(authuser.KubeScheduler) }

// ManagerAccount is who fills the cache that all control loops share, and who is
// elected to run them.
func ManagerAccount() authuser.Info { return account(authuser.KubeControllerManager) }

func account(name string, groups ...string) authuser.Info {
	return &authuser.DefaultInfo{Name: name, Groups: append(groups, authuser.AllAuthenticated)}
}
