"""Attribution: how much each word or patch of an input changes the answer."""
