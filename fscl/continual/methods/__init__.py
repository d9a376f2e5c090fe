"""The methods that come with the package: one file each, found by their being here."""
