"""Jobs as people see them, of any kind and on any cluster: found, looked at, changed, waited for, listened to."""
